"""A causal transformer over the prefix, for sequences whose far letters must be read together."""

import torch
from torch import Tensor, nn

from stochflow.core.errors import ConfigError
from stochflow.models.attention import Block
from stochflow.models.initialisation import initialise_embeddings, initialise_linears


class TransformerBody(nn.Module):
    """The methods of `PrefixBody` with attention in the place of summed k-mers.

    Element 0 stands for the empty prefix and element t for the t-th letter; an element sees itself and what came
    before it, so its output describes the prefix that ends there. While sampling, the keys and values of past
    elements are kept, and a further letter costs one row of each layer.

    A state of `begin` and `extend` is one row per sequence, [batch, width + (t + 1)·num_layers·2·width]: the output
    at the last element, then its cache, element by element. `features` reads the output alone.
    """

    def __init__(self, num_tokens: int, length: int, width: int, num_layers: int, heads: int) -> None:
        super().__init__()
        self.num_tokens, self.length, self.width = num_tokens, length, width
        self.embedding: nn.Module = nn.Embedding(num_tokens, width)
        self.positions = nn.Embedding(length, width)
        self.start = nn.Parameter(torch.zeros(width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(num_layers))
        self.norm = nn.LayerNorm(width)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw all weights from `generator`."""
        initialise_embeddings(generator, *self.embedding.parameters(), self.positions.weight, self.start)
        initialise_linears(self, generator)

    def prefix_states(self, tokens: Tensor) -> Tensor:
        """Outputs of all prefixes, the empty one first; [batch, time] → [batch, time + 1, width]."""
        if tokens.shape[1] > self.length:
            raise ConfigError(
                f"{tokens.shape[1]} letters are more than the {self.length} that the network was built for; build it "
                "for that length"
            )
        letters = self.embedding(tokens) + self.positions.weight[: tokens.shape[1]]
        hidden = torch.cat([self.start.expand(len(tokens), 1, -1), letters], dim=1)
        for block in self.blocks:
            hidden = block(hidden, causal=True)
        return hidden

    def states_at(self, tokens: Tensor, depths: Tensor) -> Tensor:
        """Output of one prefix per row: the first `depths` tokens; [rows, time], [rows] → [rows, width]."""
        longest = int(depths.max()) if len(depths) else 0
        return self.prefix_states(tokens[:, :longest])[torch.arange(len(tokens), device=tokens.device), depths]

    def states_of(self, tokens: Tensor) -> Tensor:
        """Output of whole rows; [rows, time] → [rows, width]."""
        return self.prefix_states(tokens)[:, -1]

    def child_states(self, tokens: Tensor) -> Tensor:
        """Outputs of every proper prefix with every letter after it; [batch, L] → [batch, L, K, width]."""
        batch_size, length = tokens.shape
        children = tokens.repeat(1, length * self.num_tokens).view(batch_size, length, self.num_tokens, length).clone()
        letters = torch.arange(self.num_tokens, device=tokens.device)
        steps = torch.arange(length, device=tokens.device)
        children[:, steps, :, steps] = letters.expand(length, batch_size, -1)
        depths = (steps + 1).view(1, length, 1).expand(batch_size, -1, self.num_tokens)
        return self.states_at(children.flatten(0, 2), depths.reshape(-1)).view(*depths.shape, -1)

    def begin(self, batch_size: int) -> Tensor:
        """State of the empty prefix, one row per sequence; see the class for its layout."""
        return self._append(self.start.expand(batch_size, -1), self.start.new_empty(batch_size, 0))

    def extend(self, sums: Tensor, tokens: Tensor) -> Tensor:
        """State after one more token, where `tokens` [batch, time] ends with it and `sums` is the state before it."""
        newest = self.embedding(tokens[:, -1]) + self.positions.weight[tokens.shape[1] - 1]
        return self._append(newest, sums[:, self.width :])

    def features(self, sums: Tensor) -> Tensor:
        """Normalised outputs from outputs or states; [..., width or more] → [..., width]."""
        return self.norm(sums[..., : self.width])

    def _append(self, hidden: Tensor, cache: Tensor) -> Tensor:
        """Run one element through all blocks; [batch, width] and the flat cache before it → state."""
        if not len(self.blocks):
            return hidden
        past = cache.reshape(len(hidden), -1, len(self.blocks), 2 * self.width)
        grown = []
        for layer, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            hidden, kept = block.step(hidden, past[:, :, layer])
            grown.append(kept)
        return torch.cat([hidden, torch.stack(grown, dim=2).flatten(1)], dim=-1)
