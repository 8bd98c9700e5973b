"""The body: features of every prefix of a batch of sequences in one pass."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Generic, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn import functional

from stochflow.core.arrays import Ints
from stochflow.models.engine.layers import PLAIN, RESIDUAL, TrunkFeatures
from stochflow.models.engine.prefix_layout import all_parents, all_prefixes
from stochflow.models.initialisation import initialise_embeddings, initialise_linears
from stochflow.models.kmers import Codes, Kmers, kmer_buckets

MAX_BUCKETS = 4096


def num_rows(num_tokens: int, length: int, kmers: Iterable[int] | Kmers) -> int:
    """Rows of the embedding table of a body, the padding row included."""
    return 1 + sum(_table_sizes(num_tokens, length, Kmers.of(kmers).within(length)))


def _table_sizes(num_tokens: int, length: int, kmers: Kmers) -> list[int]:
    """Rows of the table of every k; a k-mer cannot end before position k − 1, so those positions have none."""
    placed = [(length - k + 1) * min(num_tokens**k, MAX_BUCKETS) for k in kmers.placed]
    return placed + [min(num_tokens**k, MAX_BUCKETS) for k in (*kmers.anywhere, *kmers.recent)]


class LastRows(NamedTuple, Generic[Codes]):
    """Which embedding rows the last tokens of prefixes add to the sums before, and which they take away.

    Attributes:
        summed: of the k-mers that stay, [batch] per k there is.
        recent: of those that end with the last token, [batch] per k there is.
        dropped: of those that ended with the token before, [batch] per k there is.
    """

    summed: list[Codes]
    recent: list[Codes]
    dropped: list[Codes]


class PrefixBody(nn.Module):
    """Sum of k-mer embeddings along the prefix, then an MLP: residual with a norm, or plain.

    With `kmers=(1,)` the sum is the first layer of an MLP on one-hot prefixes. Longer k-mers let that layer see
    neighbouring letters together. A k-mer belongs to the position where it ends, so extending a prefix adds one
    term per k and nothing that was summed before changes; only the `recent` ones, which end with the last letter, give
    way to those of the next.

    Products with the matrices of the MLP are made in the `precision` that is set; everything else, the weights
    included, keeps its own.
    """

    offsets: Tensor
    precision: torch.dtype | None = None

    def __init__(
        self,
        num_tokens: int,
        length: int,
        kmers: Iterable[int] | Kmers,
        width: int,
        num_layers: int,
        plain: bool = False,
    ) -> None:
        super().__init__()
        self.num_tokens, self.length, self.width = num_tokens, length, width
        kmers = Kmers.of(kmers).within(length)
        self.kmers, self.recent, self.longest = (*kmers.placed, *kmers.anywhere), kmers.recent, kmers.longest
        # row 0 stays zero: it pads what has not ended yet
        firsts = list(accumulate(_table_sizes(num_tokens, length, kmers), initial=1))
        self._recent_firsts = firsts[len(self.kmers) : -1]
        offsets = []
        for row, (k, first) in enumerate(zip(self.kmers, firsts, strict=False)):
            buckets = min(num_tokens**k, MAX_BUCKETS) if row < len(kmers.placed) else 0
            offsets.append([first + (position - k + 1) * buckets for position in range(length)])
        self._first_rows = offsets
        self._complete: list[tuple[LastRows[Ints], Ints]] = []
        self.register_buffer("offsets", torch.tensor(offsets), persistent=False)
        self.embedding = nn.Embedding(firsts[-1], width, padding_idx=0)
        self.start = nn.Parameter(torch.zeros(width))
        self.trunk = PLAIN if plain else RESIDUAL
        self.norm = None if plain else nn.LayerNorm(width)
        layers = [nn.Linear(width, width) for _ in range(num_layers)]
        for layer in layers:
            # column by column in memory: a few rows are multiplied by it in half of the time
            layer.weight.data = layer.weight.data.t().contiguous().t()
        self.layers = nn.ModuleList(layers)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw all weights from `generator`."""
        initialise_embeddings(generator, self.embedding.weight, self.start)
        with torch.no_grad():
            self.embedding.weight[0].zero_()
        initialise_linears(self.layers, generator)

    def kmer_indices(self, tokens: Tensor) -> Tensor:
        """Embedding rows of the summed k-mers that end at each position; [batch, time] → [batch, time, num_kmers]."""
        columns = [
            self._rows(row, self._past_codes(tokens, k) + tokens, torch.arange(tokens.shape[1], device=tokens.device))
            for row, k in enumerate(self.kmers)
        ]
        return torch.stack(columns, dim=-1)

    def child_states(self, tokens: Tensor) -> Tensor:
        """Sums of every proper prefix with every letter after it; [batch, L] → [batch, L, K, width]."""
        positions = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(-1)
        letters = torch.arange(self.num_tokens, device=tokens.device)
        sums = self._sums(tokens[:, :-1]).unsqueeze(2)
        for row, k in enumerate((*self.kmers, *self.recent)):
            codes = self._past_codes(tokens, k).unsqueeze(-1) + letters
            sums = sums + self.embedding(self._rows(row, codes, positions))
        return sums

    def _past_codes(self, tokens: Tensor, k: int) -> Tensor:
        """What the k − 1 letters before each position add to the code of the k-mer that ends there; same shape."""
        codes = torch.zeros_like(tokens)
        for lag in range(1, min(k, tokens.shape[1])):
            codes[:, lag:] += tokens[:, :-lag] * self.num_tokens**lag
        return codes

    def _rows(self, row: int, codes: Tensor, positions: Tensor) -> Tensor:
        """Embedding rows of codes of the `row`-th k, zero where the k-mer has not ended; same shape as the codes.

        The recent ones are counted after the summed ones.
        """
        num_summed = len(self.kmers)
        k = self.kmers[row] if row < num_summed else self.recent[row - num_summed]
        first = self.offsets[row, positions] if row < num_summed else self._recent_firsts[row - num_summed]
        indices = kmer_buckets(codes, self.num_tokens**k, MAX_BUCKETS) + first
        return indices.masked_fill(positions < k - 1, 0)

    def prefix_states(self, tokens: Tensor) -> Tensor:
        """Summed embeddings of all prefixes, the empty one first; [batch, time] → [batch, time + 1, width]."""
        sums = self._sums(tokens)
        if not self.recent:
            return sums
        return sums + functional.pad(self.embedding(self._recent_indices(tokens)).sum(dim=-2), (0, 0, 1, 0))

    def _sums(self, tokens: Tensor) -> Tensor:
        """The same without the recent ones."""
        terms = self.embedding(self.kmer_indices(tokens)).sum(dim=-2)
        start = self.start.expand(len(tokens), 1, -1)
        return torch.cat([start, terms], dim=1).cumsum(dim=1)

    def _recent_indices(self, tokens: Tensor) -> Tensor:
        """Embedding rows of the recent k-mers that end at each position; [batch, time] → [batch, time, num_recent]."""
        positions, first = torch.arange(tokens.shape[1], device=tokens.device), len(self.kmers)
        columns = [
            self._rows(first + row, self._past_codes(tokens, k) + tokens, positions)
            for row, k in enumerate(self.recent)
        ]
        return torch.stack(columns, dim=-1)

    def complete_levels(self, num_levels: int) -> list[tuple[LastRows[Ints], Ints]]:
        """Per level after the empty prefix, all prefixes of so many tokens; made once.

        Returns:
            what their last tokens change, and the prefixes before; [K^t] each.
        """
        for depth in range(len(self._complete) + 1, num_levels + 1):
            columns = all_prefixes(self.num_tokens, depth, torch.device("cpu")).numpy().T
            self._complete.append((self.last_rows(list(columns), depth), all_parents(self.num_tokens, depth)))
        return self._complete[:num_levels]

    def states_at(self, tokens: Tensor, depths: Tensor) -> Tensor:
        """Summed embedding of one prefix per row: the first `depths` tokens; [rows, time], [rows] → [rows, width]."""
        indices = self.kmer_indices(tokens)
        inside = torch.arange(tokens.shape[1], device=tokens.device) < depths.unsqueeze(-1)
        indices = indices.masked_fill(~inside.unsqueeze(-1), 0).flatten(1)
        if self.recent and tokens.shape[1]:
            last = (depths - 1).clamp(min=0).view(-1, 1, 1).expand(-1, 1, len(self.recent))
            recent = self._recent_indices(tokens).gather(1, last).squeeze(1)
            indices = torch.cat([indices, recent.masked_fill(depths.unsqueeze(-1) == 0, 0)], dim=1)
        bags = functional.embedding_bag(indices, self.embedding.weight, mode="sum", padding_idx=0)
        return bags + self.start

    def bags(self, tokens: Ints, depths: Ints) -> sparse.csr_matrix:
        """Which embeddings `states_at` adds up, as ones; [rows, time], [rows] → [rows, num_embeddings]."""
        time = tokens.shape[1]
        columns, inside = [np.empty((len(tokens), 0), np.int64)], [np.empty((len(tokens), 0), bool)]
        for row, k in enumerate((*self.kmers, *self.recent)):
            codes = tokens[:, : max(time + 1 - k, 0)]
            for place in range(1, k):
                codes = codes * self.num_tokens + tokens[:, place : place + codes.shape[1]]
            buckets, ends = kmer_buckets(codes, self.num_tokens**k, MAX_BUCKETS), np.arange(k, time + 1)
            if row < len(self.kmers):
                columns.append(buckets + self._first_rows[row][k - 1 : time])
                inside.append(ends <= depths[:, None])
            else:
                columns.append(buckets + self._recent_firsts[row - len(self.kmers)])
                inside.append(ends == depths[:, None])
        found = np.concatenate(inside, axis=1)
        indices = np.concatenate(columns, axis=1)[found]
        starts = np.concatenate([[0], np.count_nonzero(found, axis=1).cumsum()])
        ones = np.ones(len(indices), self.embedding.weight.detach().numpy().dtype)
        return sparse.csr_matrix((ones, indices, starts), shape=(len(tokens), self.embedding.num_embeddings))

    def states_of(self, tokens: Tensor) -> Tensor:
        """Summed embedding of whole rows; [rows, time] → [rows, width].

        Rows that stand together and differ in their last letter alone share the sum of the letters before it.
        """
        rows, time = tokens.shape
        if time < 2 or not rows:
            return self.states_at(tokens, torch.full((rows,), time, device=tokens.device))
        parents, which = tokens[:, :-1].unique_consecutive(dim=0, return_inverse=True)
        sums = self.states_at(parents, torch.full((len(parents),), time - 1, device=tokens.device))
        return self.extend(sums[which], tokens)

    def begin(self, batch_size: int) -> Tensor:
        """Sums of the empty prefix, [batch, width]: what `extend` starts from."""
        return self.start.expand(batch_size, -1)

    def extend(self, sums: Tensor, tokens: Tensor) -> Tensor:
        """Sums after one more token, where `tokens` [batch, time] ends with it; [batch, width] → same."""
        return self.add(sums, self.last_rows(tokens.unbind(dim=1), tokens.shape[1]))

    def add(self, sums: Tensor, rows: "LastRows[Tensor]", into: Tensor | None = None) -> Tensor:
        """Sums after one more token; [batch, width] → same, written where it is wanted."""
        weight = self.embedding.weight
        for column in (*rows.summed, *rows.recent):
            sums = torch.add(sums, weight.index_select(0, column), out=into)
        for column in rows.dropped:
            sums = torch.sub(sums, weight.index_select(0, column), out=into)
        if not any(rows) and into is not None:  # no k-mer ends here
            into.copy_(sums)
        return sums

    def last_rows(self, tokens: Sequence[Codes], depth: int) -> "LastRows[Codes]":
        """Embedding rows of the k-mers that end with the last token of prefixes, and those they take the place of.

        Args:
            tokens: the last `longest` + 1 positions of the prefixes at least, or all, [batch] each.
            depth: tokens of a prefix.
        """
        summed = [
            self._code(tokens, k) + self._first_rows[row][depth - 1] for row, k in enumerate(self.kmers) if k <= depth
        ]
        return LastRows(summed, self._recent_rows(tokens, depth), self._recent_rows(tokens[:-1], depth - 1))

    def _recent_rows(self, tokens: Sequence[Codes], depth: int) -> list[Codes]:
        """Embedding rows of the recent k-mers of prefixes; [batch] per k there is."""
        firsts = zip(self.recent, self._recent_firsts, strict=True)
        return [self._code(tokens, k) + first for k, first in firsts if k <= depth]

    def _code(self, tokens: Sequence[Codes], k: int) -> Codes:
        """Bucket of the k-mer of the last k positions, [batch] each → [batch]."""
        codes = tokens[-k]
        for place in range(1 - k, 0):
            codes = codes * self.num_tokens + tokens[place]
        return kmer_buckets(codes, self.num_tokens**k, MAX_BUCKETS)

    def features(self, sums: Tensor) -> Tensor:
        """Layers behind the first one; [..., width] → [..., width]."""
        if self.norm is None:
            hidden = sums.relu()
            for layer in self.layers:
                hidden = self._linear(layer, hidden).relu()
            return hidden
        hidden = functional.gelu(self.norm(sums))
        for layer in self.layers:
            hidden = hidden + functional.gelu(self._linear(layer, hidden))
        return hidden

    def _linear(self, layer: nn.Module, inputs: Tensor) -> Tensor:
        """W·x + b in the precision of products; [..., width] → [..., width]."""
        if self.precision is None or not isinstance(layer, nn.Linear):
            found: Tensor = layer(inputs)
            return found
        products = functional.linear(inputs.to(self.precision), layer.weight.to(self.precision))
        return products.to(inputs.dtype) + layer.bias

    @property
    def trunk_weights(self) -> list[Tensor]:
        """Scale and shift of the norm, if there is one, then W and b of every layer."""
        layers = [layer for layer in self.layers if isinstance(layer, nn.Linear)]
        parts: list[nn.LayerNorm | nn.Linear] = [*layers] if self.norm is None else [self.norm, *layers]
        return [weight for part in parts for weight in (part.weight, part.bias)]

    def engine_features(self, sums: Tensor) -> Tensor:
        """The same for [rows, width], with a hand-written gradient."""
        given = (self.trunk, self.precision, sums, *self.trunk_weights)
        features: Tensor = TrunkFeatures.apply(*given)  # type: ignore[no-untyped-call]  # torch
        return features
