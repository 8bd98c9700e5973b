"""The body: features of every prefix of a batch of sequences in one pass."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from stochflow.kmers import kmer_buckets

MAX_BUCKETS = 4096
_EMBEDDING_SCALE = 0.1


class PrefixBody(nn.Module):
    """Sum of position-specific k-mer embeddings along the prefix, then a residual MLP.

    With `kmers=(1,)` the sum is the first layer of an MLP on one-hot prefixes. Longer k-mers let that layer see
    neighbouring letters together. A k-mer belongs to the position where it ends, so extending a prefix adds one
    term per k and nothing that was summed before changes.
    """

    offsets: Tensor

    def __init__(self, num_tokens: int, length: int, kmers: tuple[int, ...], width: int, num_layers: int) -> None:
        super().__init__()
        self.num_tokens, self.length, self.width = num_tokens, length, width
        self.kmers = tuple(k for k in kmers if k <= length)
        offsets, num_rows = [], 1  # row 0 stays zero: it pads k-mers that have not ended yet
        for k in self.kmers:
            buckets = min(num_tokens**k, MAX_BUCKETS)
            # a k-mer cannot end before position k − 1, so the rows of those positions do not exist
            offsets.append([num_rows + (position - k + 1) * buckets for position in range(length)])
            num_rows += (length - k + 1) * buckets
        self.register_buffer("offsets", torch.tensor(offsets), persistent=False)
        self.embedding = nn.Embedding(num_rows, width, padding_idx=0)
        self.start = nn.Parameter(torch.zeros(width))
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(num_layers))

    def initialise(self, generator: torch.Generator) -> None:
        """Draw all weights from `generator`; nothing depends on torch's global state."""
        with torch.no_grad():
            self.embedding.weight.normal_(std=_EMBEDDING_SCALE, generator=generator)
            self.embedding.weight[0].zero_()
            self.start.normal_(std=_EMBEDDING_SCALE, generator=generator)
            bound = self.width**-0.5
            for name, parameter in self.layers.named_parameters():
                if name.endswith("weight"):
                    parameter.uniform_(-bound, bound, generator=generator)
                else:
                    parameter.zero_()

    def kmer_indices(self, tokens: Tensor) -> Tensor:
        """Embedding rows of the k-mers that end at each position; [batch, time] → [batch, time, num_kmers]."""
        time = tokens.shape[1]
        columns = []
        for row, k in enumerate(self.kmers):
            codes = torch.zeros_like(tokens)
            for lag in range(min(k, time)):
                codes[:, lag:] += tokens[:, : time - lag] * self.num_tokens**lag
            indices = kmer_buckets(codes, self.num_tokens**k, MAX_BUCKETS) + self.offsets[row, :time]
            indices[:, : k - 1] = 0
            columns.append(indices)
        return torch.stack(columns, dim=-1)

    def prefix_sums(self, tokens: Tensor) -> Tensor:
        """Summed embeddings of all prefixes, the empty one first; [batch, time] → [batch, time + 1, width]."""
        terms = self.embedding(self.kmer_indices(tokens)).sum(dim=-2)
        start = self.start.expand(len(tokens), 1, -1)
        return torch.cat([start, terms], dim=1).cumsum(dim=1)

    def sums_at(self, tokens: Tensor, depths: Tensor) -> Tensor:
        """Summed embedding of one prefix per row: the first `depths` tokens; [rows, time], [rows] → [rows, width]."""
        indices = self.kmer_indices(tokens)
        inside = torch.arange(tokens.shape[1], device=tokens.device) < depths.unsqueeze(-1)
        indices = indices.masked_fill(~inside.unsqueeze(-1), 0).flatten(1)
        bags = functional.embedding_bag(indices, self.embedding.weight, mode="sum", padding_idx=0)
        return bags + self.start

    def begin(self, batch_size: int) -> Tensor:
        """Sums of the empty prefix, [batch, width]: what `extend` starts from."""
        return self.start.expand(batch_size, -1)

    def extend(self, sums: Tensor, tokens: Tensor) -> Tensor:
        """Sums after one more token, where `tokens` [batch, time] ends with it; [batch, width] → same."""
        time = tokens.shape[1]
        window = min(time, max(self.kmers))
        indices = self._last_indices(tokens[:, time - window :], time - 1)
        return sums + self.embedding(indices).sum(dim=-2)

    def _last_indices(self, window: Tensor, position: int) -> Tensor:
        """Embedding rows of the k-mers that end at `position`; [batch, window] → [batch, num_kmers]."""
        columns = []
        for row, k in enumerate(self.kmers):
            if k > position + 1:
                columns.append(torch.zeros_like(window[:, 0]))
                continue
            powers = self.num_tokens ** torch.arange(k - 1, -1, -1, device=window.device)
            codes = (window[:, -k:] * powers).sum(dim=-1)
            columns.append(kmer_buckets(codes, self.num_tokens**k, MAX_BUCKETS) + self.offsets[row, position])
        return torch.stack(columns, dim=-1)

    def features(self, sums: Tensor) -> Tensor:
        """Trunk on summed embeddings; [..., width] → [..., width]."""
        hidden = functional.gelu(self.norm(sums))
        for layer in self.layers:
            hidden = hidden + functional.gelu(layer(hidden))
        return hidden
