"""Histories of tokens: the string that a history writes, which are possible, and the backward policy p_B(h|x)."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from stochflow.core.logspace import TINY_PROBABILITY


class Progress(NamedTuple):
    """State of every prefix of histories, the empty prefix first; both [batch, time + 1].

    Attributes:
        counts: letters written so far.
        stopped: True after a stop.
    """

    counts: Tensor
    stopped: Tensor


@dataclass(frozen=True)
class LengthRules:
    """Rules of histories: T = `max_length` cycles, in each of which a letter or the stop is intended.

    Tokens are the K letters and the stop; with deletions a gap (nothing is written), with duplications every letter
    doubled. Gap and doubles are outcomes that cannot be intended. A letter may be intended until `max_length` letters
    are written, the stop from `min_length` letters on, and after a stop only the stop.

    >>> rules = LengthRules(num_letters=2, min_length=1, max_length=3, deletion=0.1)
    >>> rules.stop, rules.num_tokens, rules.num_designs
    (2, 4, 14)
    >>> rules.written(torch.tensor([[1, 3, 0]]))  # letter 1, a gap, letter 0
    tensor([[1, 0, 2, 2]])

    Attributes:
        deletion: δ, probability that an intended letter is not written.
        duplication: d, probability that it is written twice.
    """

    num_letters: int
    min_length: int
    max_length: int
    deletion: float = 0.0
    duplication: float = 0.0

    @property
    def stop(self) -> int:
        return self.num_letters

    @property
    def edits(self) -> bool:
        """True when several histories may write the same design."""
        return self.deletion > 0 or self.duplication > 0

    @property
    def num_tokens(self) -> int:
        return self.num_letters + 1 + (self.deletion > 0) + self.num_letters * (self.duplication > 0)

    @property
    def first_double(self) -> int:
        """Token of the first letter doubled, whether there are doubles or not."""
        return self.num_letters + 1 + (self.deletion > 0)

    @property
    def _kept(self) -> float:
        """Probability that a letter is written once."""
        return 1.0 - self.deletion - self.duplication

    @property
    def num_designs(self) -> int:
        """Number of strings within the bounds of length."""
        return sum(self.num_letters**length for length in range(self.min_length, self.max_length + 1))

    @cached_property
    def _written(self) -> Tensor:
        """Number of letters that each token writes, [num_tokens]."""
        tokens = torch.arange(self.num_tokens)
        return (tokens < self.num_letters).long() + 2 * (tokens >= self.first_double).long()

    @cached_property
    def _letter(self) -> Tensor:
        """Letter that each token writes, the stop for tokens that write none, [num_tokens]."""
        tokens = torch.arange(self.num_tokens)
        single = torch.where(tokens < self.num_letters, tokens, self.stop)
        return torch.where(tokens >= self.first_double, tokens - self.first_double, single)

    @cached_property
    def outcomes(self) -> Tensor:
        """True for outcomes that an intention can have under any noise, [num_tokens, num_tokens]."""
        possible = torch.eye(self.num_tokens, dtype=torch.bool)
        possible[: self.num_letters] = torch.arange(self.num_tokens) != self.stop
        return possible

    def progress(self, tokens: Tensor) -> Progress:
        """Letters written and stops met before every cycle and after the last; [batch, time] → [batch, time + 1]."""
        stopped = _before((tokens == self.stop).cumsum(dim=1)) > 0
        written = torch.where(stopped[:, :-1], 0, self._written.to(tokens.device)[tokens])
        return Progress(_before(written.cumsum(dim=1)), stopped)

    def intentions(self, progress: Progress) -> Tensor:
        """Action mask, True for tokens that may be intended; [batch, time] of both → [batch, time, num_tokens]."""
        counts, stopped = progress
        allowed = torch.zeros(*counts.shape, self.num_tokens, dtype=torch.bool, device=counts.device)
        allowed[..., : self.num_letters] = (~stopped & (counts < self.max_length)).unsqueeze(-1)
        allowed[..., self.stop] = stopped | (counts >= self.min_length)
        return allowed

    def possible(self, tokens: Tensor) -> Tensor:
        """True for prefixes of histories with positive probability under some policy; [batch, time] → [batch]."""
        return self._status(tokens)[0]

    def alive(self, tokens: Tensor) -> Tensor:
        """True for possible prefixes that can be completed to a design within the bounds; [batch, time] → [batch]."""
        possible, counts, stopped = self._status(tokens)
        reach = (self.max_length - tokens.shape[1]) * (2 if self.duplication else 1)
        longest = torch.where(stopped, counts, counts + reach)
        return possible & (counts <= self.max_length) & (longest >= self.min_length)

    def _status(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Whether prefixes are possible, the number of letters they write, and whether they have stopped; [batch] each.

        Plans call this for every child outside the trie, so no running totals are formed: counts never decrease, and
        it is enough to know where the stops begin and how much was written before the last token in front of them.
        """
        stops = tokens == self.stop
        written = self._written.to(torch.uint8).to(tokens.device)[tokens]
        counts, num_stops = written.sum(dim=1), stops.sum(dim=1)
        resumed = (stops[:, :-1] & ~stops[:, 1:]).any(dim=1)
        last = (tokens.shape[1] - num_stops - 1).clamp_min(0).unsqueeze(-1)
        before_last = counts - (written.gather(1, last).squeeze(-1) if tokens.shape[1] else 0)
        stopped, begun = num_stops > 0, num_stops < tokens.shape[1]
        too_long = begun & (before_last >= self.max_length)
        too_short = stopped & (counts < self.min_length)
        return ~(resumed | too_long | too_short), counts, stopped

    def written(self, tokens: Tensor) -> Tensor:
        """Letters that histories write, padded with the stop; [batch, time] → [batch, max_length + 1].

        There is one column more than `max_length`, because a double may exceed it.
        """
        counts, stopped = self.progress(tokens)
        starts, width = counts[:, :-1], self.max_length + 1
        letters, copies = (table.to(tokens.device)[tokens] for table in (self._letter, self._written))
        # the last column receives what is not written, and is dropped
        design = torch.full((len(tokens), width + 1), self.stop, device=tokens.device)
        for copy in (0, 1):
            counted = (copies > copy) & ~stopped[:, :-1]
            design.scatter_(1, torch.where(counted, starts + copy, width).clamp_max(width), letters)
        return design[:, :width]

    def canonical(self, tokens: Tensor) -> Tensor:
        """The history without edits that writes the same design; only stops for designs out of bounds.

        [batch, max_length] → [batch, max_length].
        """
        plain = self.written(tokens)[:, : self.max_length]
        return torch.where(self.alive(tokens).unsqueeze(-1), plain, self.stop)

    def log_shares(self, tokens: Tensor) -> Tensor:
        """Backward policy log p_B(h|x) = log w(h)/W(x), float64; log 1e-30 if h is impossible; [batch, T] → [batch].

        w(h) is the product of δ per gap, d per double and 1 − δ − d per single letter; W(x) sums it over all histories
        that write x. The shares p_B of a design sum to one.
        """
        rates = torch.tensor([self.deletion, self._kept, self.duplication], dtype=torch.float64)
        log_weights = torch.where(tokens == self.stop, 0.0, rates.log()[self._written[tokens]]).sum(dim=1)
        log_shares = (log_weights - self._log_totals(self.written(tokens))).clamp_max(0.0)
        impossible = torch.tensor(TINY_PROBABILITY, dtype=torch.float64).log()
        return torch.where(self.possible(tokens), log_shares, impossible)

    def _log_totals(self, designs: Tensor) -> Tensor:
        """log W(x); [batch, max_length + 1] → [batch]."""
        lengths = (designs != self.stop).sum(dim=1)
        repeats = (designs[:, 1:] == designs[:, :-1]) & (designs[:, 1:] != self.stop) & (self.duplication > 0)
        # W is a function of the length and of the places where a letter repeats
        shapes, which = torch.cat([lengths.unsqueeze(-1), repeats.long()], dim=1).unique(dim=0, return_inverse=True)
        return self._swept(shapes[:, :1], shapes[:, 1:].double())[which]

    def _swept(self, lengths: Tensor, repeats: Tensor) -> Tensor:
        """log W by dynamic programming over cycles and prefixes of the design.

        Args:
            lengths: letters of a design, [batch, 1].
            repeats: one where a letter equals the one before it, [batch, max_length].

        Returns:
            [batch].
        """
        places = torch.arange(self.max_length + 2)
        inside, going_on = (places <= lengths).double(), (places < self.max_length).double()
        may_stop = (lengths >= self.min_length).double()
        reached = (places == 0).double().repeat(len(lengths), 1)  # weight of every prefix, [batch, max_length + 2]
        stopped, log_scale = torch.zeros_like(may_stop), torch.zeros_like(may_stop)
        for _ in range(self.max_length):
            stopped = stopped + may_stop * reached.gather(1, lengths)
            before = reached * going_on
            reached = self.deletion * before
            reached[:, 1:] += self._kept * before[:, :-1]
            reached[:, 2:] += self.duplication * repeats * before[:, :-2]
            reached *= inside
            # rescaled after each cycle against underflow
            scale = torch.maximum(reached.amax(dim=1, keepdim=True), stopped)
            reached, stopped, log_scale = reached / scale, stopped / scale, log_scale + scale.log()
        return (log_scale + (stopped + reached.gather(1, lengths)).log()).squeeze(-1)


def _before(running: Tensor) -> Tensor:
    """Running totals before every step and after the last, zero first; [batch, time] → [batch, time + 1]."""
    return torch.nn.functional.pad(running, (1, 0))
