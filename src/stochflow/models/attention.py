"""Self-attention blocks: the part that the context encoder and the transformer body share."""

import torch
from torch import Tensor, nn
from torch.nn import functional

_EXPANSION = 4


class Block(nn.Module):
    """h ← h + attention(norm h), then h ← h + feed_forward(norm h): the residual path itself is never normalised."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.attention_norm = nn.LayerNorm(width)
        self.projections = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.feed_norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, _EXPANSION * width)
        self.contract = nn.Linear(_EXPANSION * width, width)

    def forward(
        self,
        hidden: Tensor,
        visible: Tensor | None = None,
        causal: bool = False,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """All elements at once; [batch, time, width] → [batch, time, width].

        Args:
            visible: True where a query (row) may look at a key (column), broadcastable to [batch, heads, time, time].
            causal: no element looks at a later one.
            generator: draws the dropout masks; needed in training mode when `dropout` is not zero.
        """
        queries, keys, values = self.projections(self.attention_norm(hidden)).chunk(3, dim=-1)
        attended = self._attend(queries, keys, values, visible, causal)
        hidden = hidden + self._dropped(self.mix(attended), generator)
        return hidden + self._dropped(self._feed_forward(hidden), generator)

    def step(self, hidden: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        """One more element after those in the cache.

        Args:
            hidden: the new element, [batch, width].
            cache: keys and values of the elements before it, [batch, time, 2·width].

        Returns:
            The block's output for the new element, [batch, width], and the cache with it, [batch, time + 1, 2·width].
        """
        queries, fresh = self.projections(self.attention_norm(hidden)).tensor_split([hidden.shape[-1]], dim=-1)
        cache = torch.cat([cache, fresh.unsqueeze(-2)], dim=-2)
        keys, values = cache.chunk(2, dim=-1)
        hidden = hidden + self.mix(self._attend(queries.unsqueeze(-2), keys, values).squeeze(-2))
        return hidden + self._feed_forward(hidden), cache

    def _attend(
        self, queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """softmax(QKᵀ/√d)·V per head; [batch, time, width] → [batch, time, width]."""
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(-2, -3) for part in (queries, keys, values))
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=visible, is_causal=causal)
        return attended.transpose(-2, -3).flatten(-2)

    def _feed_forward(self, hidden: Tensor) -> Tensor:
        return self.contract(functional.gelu(self.expand(self.feed_norm(hidden))))

    def _dropped(self, branch: Tensor, generator: torch.Generator | None) -> Tensor:
        """The branch with a share of its entries set to zero and the others scaled up; itself outside training."""
        if not self.training or self.dropout == 0.0:
            return branch
        if generator is None:
            raise ValueError("dropout draws masks in training mode; pass a generator or call eval() first")
        kept = torch.rand(branch.shape, generator=generator) >= self.dropout
        return branch * kept.to(branch) / (1.0 - self.dropout)
