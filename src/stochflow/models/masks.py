"""The interface of action masks: which intentions are allowed at a prefix."""

from typing import Protocol

from torch import Tensor


class IntentionMask(Protocol):
    """True where an intention is allowed; at least one is at every prefix.

    Attributes:
        binding: True for rules of the world, which every plan and the optimum keep to as well; False for good advice.
    """

    binding: bool

    def all_prefixes(self, tokens: Tensor) -> Tensor:
        """At every prefix, the empty one first; [batch, time] → [batch, time + 1, K]."""

    def at(self, tokens: Tensor, depths: Tensor) -> Tensor:
        """At one prefix per row, the first `depths` tokens of it; [rows, time], [rows] → [rows, K]."""

    def next(self, tokens: Tensor) -> Tensor:
        """At whole prefixes; [batch, time] → [batch, K]."""

    def alive(self, tokens: Tensor) -> Tensor:
        """True for prefixes that can still become an allowed design; [batch, time] → [batch]."""
