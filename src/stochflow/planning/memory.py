"""Scores that were paid for: each once, or again and again where the oracle is noisy."""

from collections.abc import Callable

import torch
from torch import Tensor

from stochflow.errors import OracleError
from stochflow.planning.trie import PrefixTrie
from stochflow.tasks.base import Reward


class ScoreMemory:
    """Remembers the score of every sequence that was ever sent to the oracle.

    With a `reward` the oracle counts as noisy: every visit is measured anew, and what is remembered is the score whose
    reward is the mean reward of all measurements, (mean R)^(1/β). The target is E[R], and this is how to estimate it.

    Attributes:
        trie: all prefixes of the paid sequences.
        scores: score of each distinct sequence in order of arrival, float64, [num_sequences].
        counts: measurements of each, float64, [num_sequences]; all ones without noise.
    """

    def __init__(self, num_tokens: int, length: int, reward: Reward | None = None) -> None:
        self.trie = PrefixTrie(num_tokens, length)
        self.scores = torch.empty(0, dtype=torch.float64)
        self.counts = torch.empty(0, dtype=torch.float64)
        self._reward = reward

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def num_calls(self) -> int:
        """Answers of the oracle so far."""
        return int(self.counts.sum())

    @property
    def designs(self) -> "ScoreMemory":
        """Each design with its score once: this memory, unless several of its sequences write the same design."""
        return self

    def canonical(self, sequences: Tensor) -> Tensor:
        """The sequences that stand for designs in `designs`; [batch, L] → [batch, L]."""
        return sequences

    @property
    def sequences(self) -> Tensor:
        """Paid sequences in order of arrival, [num_sequences, L]."""
        return self.trie.sequences

    def asks(self, sequences: Tensor) -> Tensor:
        """True in rows for which `pay` would ask the oracle: new sequences once, all where it is noisy. → [batch]."""
        if self._reward is not None:
            return torch.ones(len(sequences), dtype=torch.bool)
        unseen = (self.trie.find(sequences) < 0).nonzero().squeeze(-1)
        distinct, which = sequences[unseen].unique(dim=0, return_inverse=True)
        first_rows = torch.full((len(distinct),), len(sequences)).scatter_reduce(0, which, unseen, "amin")
        return torch.zeros(len(sequences), dtype=torch.bool).index_fill(0, first_rows, True)

    def pay(self, sequences: Tensor, oracle: Callable[[Tensor], Tensor]) -> Tensor:
        """Scores of a batch, float64, [batch]; only sequences never seen before go to the oracle, unless it is noisy.

        Then all of them do, and what comes back is this measurement, not the mean.
        """
        if self._reward is not None:
            return self._measure(sequences, oracle, self._reward)
        indices = self.trie.find(sequences)
        unseen = sequences[indices < 0].unique(dim=0)
        if len(unseen):
            # checked before anything is stored: a failing oracle must not leave half an entry behind
            # … and the oracle gets a copy, so that what it does to its input stays with it
            scores = checked_scores(oracle(unseen.clone()), len(unseen))
            added = self.trie.insert(unseen)
            self.scores = torch.cat([self.scores, torch.empty(len(unseen), dtype=torch.float64)])
            self.scores[added] = scores
            self.counts = torch.ones_like(self.scores)
            indices = self.trie.find(sequences)
        return self.scores[indices]

    def _measure(self, sequences: Tensor, oracle: Callable[[Tensor], Tensor], reward: Reward) -> Tensor:
        scores = checked_scores(oracle(sequences.clone()), len(sequences))
        indices = self.trie.insert(sequences)
        num_new = len(self.trie) - len(self.scores)
        nothing = torch.zeros(num_new, dtype=torch.float64)
        totals = torch.cat([self.counts * reward.log_reward(self.scores).exp(), nothing])
        totals.index_add_(0, indices, reward.log_reward(scores).exp())
        self.counts = torch.cat([self.counts, nothing]).index_add_(0, indices, torch.ones_like(scores))
        self.scores = (totals / self.counts) ** (1.0 / reward.beta)
        return scores

    def lookup(self, sequences: Tensor) -> Tensor:
        """Remembered scores, NaN where none was paid for; [batch, L] → [batch]."""
        indices = self.trie.find(sequences)
        scores = torch.full((len(sequences),), torch.nan, dtype=torch.float64)
        scores[indices >= 0] = self.scores[indices[indices >= 0]]
        return scores

    def state_dict(self) -> dict[str, Tensor]:
        state = {"scores": self.scores, **self.trie.state_dict()}
        return state if self._reward is None else {"counts": self.counts, **state}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.trie.load_state_dict(state)
        self.scores = state["scores"]
        self.counts = torch.ones_like(self.scores) if self._reward is None else state["counts"]


def checked_scores(scores: object, expected: int) -> Tensor:
    """The oracle's answer as float64, [expected], or an error that says what is wrong with it."""
    try:
        tensor = torch.as_tensor(scores, dtype=torch.float64).detach().cpu()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise OracleError(
            f"the oracle must return one number per sequence ({error}); correct the score function"
        ) from None
    if tensor.shape != (expected,):
        raise OracleError(
            f"the oracle returned scores of shape {tuple(tensor.shape)} for {expected} sequences; "
            "return exactly one score per sequence"
        )
    bad = ~torch.isfinite(tensor) | (tensor < 0)
    if bool(bad.any()):
        raise OracleError(
            f"the oracle returned {float(tensor[bad][0])} for {int(bad.sum())} of {expected} sequences; "
            "scores must be finite and not negative, so shift, clip or repair them"
        )
    return tensor
