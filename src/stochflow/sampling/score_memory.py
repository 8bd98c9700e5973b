"""A cache of oracle scores by sequence; the mean of several measurements where the oracle is noisy."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from stochflow.core.arrays import Floats, Ints
from stochflow.core.codes import first_rows, place_values
from stochflow.core.errors import OracleError
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.task import MAX_SCORE
from stochflow.sampling.prefix_trie import PrefixTrie

_MAX_TABLE = 2**22  # sequences of a space that is kept as one table of scores: 32 megabytes


class ScoreMemory:
    """Cache of the scores of all sequences that were sent to the oracle.

    With a `reward` the oracle counts as noisy: every visit is measured anew, and what is remembered is the score whose
    reward is the mean reward of all measurements, (mean R)^(1/β). The target is E[R], and this is how to estimate it.

    Where all sequences fit into one table a look-up is one read of it, and new sequences are pending until `settle`, or
    a read of `trie` or `scores`, inserts them into the trie.
    """

    def __init__(self, num_tokens: int, length: int, reward: Reward | None = None) -> None:
        self._trie = PrefixTrie(num_tokens, length)
        self._scores = torch.empty(0, dtype=torch.float64)
        self._counts = torch.empty(0, dtype=torch.float64)
        self._reward = reward
        # in numpy, whose operations on a handful of numbers cost a fraction of torch's
        self._table: Floats | None = None
        if reward is None and num_tokens**length <= _MAX_TABLE:
            self._table = np.full(num_tokens**length, np.nan)
            self._powers = place_values(num_tokens, length).numpy()
        self._pending: list[tuple[Tensor, Tensor]] = []  # sequences and scores that the trie does not have yet
        self._num_pending = 0

    def __len__(self) -> int:
        return self._scores.shape[0] + self._num_pending

    @property
    def trie(self) -> PrefixTrie:
        """All prefixes of the paid sequences."""
        self.settle()
        return self._trie

    @property
    def scores(self) -> Tensor:
        """Score of each distinct sequence in order of arrival, float64, [num_sequences]."""
        self.settle()
        return self._scores

    def best_scores(self, num: int) -> Tensor:
        """The highest scores among the paid designs, best first, float64, [at most num].

        Nothing is settled: being read must not change how later sequences are numbered.
        """
        scores = torch.cat([self._scores, *(scores for _, scores in self._pending)])
        return scores.topk(min(num, len(scores))).values

    @property
    def counts(self) -> Tensor:
        """Measurements of each distinct sequence, float64, [num_sequences]; all ones without noise."""
        return torch.ones_like(self.scores) if self._reward is None else self._counts

    @property
    def num_calls(self) -> int:
        """Answers of the oracle so far."""
        return len(self) if self._reward is None else int(self._counts.sum())

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

    def settle(self) -> None:
        """Insert the pending sequences into the trie; they are numbered as one batch."""
        if self._pending:
            sequences, scores = (torch.cat(column) for column in zip(*self._pending, strict=True))
            self._pending, self._num_pending = [], 0
            self._store(sequences, scores)

    def asks(self, sequences: Tensor) -> Tensor:
        """True in rows for which `pay` would ask the oracle: new sequences once, all where it is noisy. → [batch]."""
        if self._reward is not None:
            return torch.ones(len(sequences), dtype=torch.bool)
        asked = torch.zeros(len(sequences), dtype=torch.bool)
        return asked.index_fill_(0, self._new_rows(sequences), True)

    def pay(self, sequences: Tensor, oracle: Callable[[Tensor], Tensor]) -> Tensor:
        """Scores of a batch, float64, [batch]; only sequences never seen before go to the oracle, unless it is noisy.

        Then all of them do, and what comes back is this measurement, not the mean.
        """
        if self._reward is not None:
            return self._measure(sequences, oracle, self._reward)
        rows = self._new_rows(sequences)
        if len(rows):
            unseen = sequences[rows]
            self._remember(unseen, _answers(oracle, unseen))
        return self.lookup(sequences)

    def _remember(self, unseen: Tensor, scores: Tensor) -> None:
        """Keep the scores, [num], of new sequences, [num, L]: in the table and pending for the trie, or in the trie."""
        if self._table is None:
            self._store(unseen, scores)
            return
        self._table[self._codes(unseen)] = scores.numpy()
        self._pending.append((unseen, scores))
        self._num_pending += len(unseen)

    def _store(self, sequences: Tensor, scores: Tensor) -> None:
        """Put new sequences, [num, L], and their scores, [num], into the trie."""
        added = self._trie.insert(sequences)
        self._scores = torch.cat([self._scores, torch.empty_like(scores)])
        self._scores[added] = scores

    def _new_rows(self, sequences: Tensor) -> Tensor:
        """The first row of every sequence that was never paid for, sequences in lexicographic order; [num_new]."""
        if self._table is not None:
            codes = self._codes(sequences)
            rows = np.isnan(self._table[codes]).nonzero()[0]
            return torch.from_numpy(rows[np.unique(codes[rows], return_index=True)[1]])
        unseen = (self._trie.find(sequences) < 0).nonzero().squeeze(-1)
        distinct, which = sequences[unseen].unique(dim=0, return_inverse=True)
        return first_rows(which, len(distinct), unseen)

    def _codes(self, sequences: Tensor) -> Ints:
        """Place of each sequence in lexicographic order, [batch]."""
        return np.asarray(sequences.numpy() @ self._powers)

    def _measure(self, sequences: Tensor, oracle: Callable[[Tensor], Tensor], reward: Reward) -> Tensor:
        scores = checked_scores(oracle(sequences.clone()), len(sequences))
        indices = self._trie.insert(sequences)
        nothing = torch.zeros(len(self._trie) - len(self._scores), dtype=torch.float64)
        before = reward.log_reward(torch.cat([self._scores, nothing]))
        fresh = reward.log_reward(scores)
        # shares of the largest reward of each sequence, which stay finite whatever the rewards are
        peaks = before.scatter_reduce(0, indices, fresh, "amax")
        counts = torch.cat([self._counts, nothing])
        totals = (counts * (before - peaks).exp()).index_add_(0, indices, (fresh - peaks[indices]).exp())
        self._counts = counts.index_add_(0, indices, torch.ones_like(scores))
        self._scores = (((totals / self._counts).log() + peaks) / reward.beta).exp()
        return scores

    def lookup(self, sequences: Tensor) -> Tensor:
        """Remembered scores, NaN where none was paid for; [batch, L] → [batch]."""
        if self._table is not None:
            return torch.from_numpy(self._table[self._codes(sequences)])
        indices = self._trie.find(sequences)
        scores = torch.full((len(sequences),), torch.nan, dtype=torch.float64)
        scores[indices >= 0] = self._scores[indices[indices >= 0]]
        return scores

    def state_dict(self) -> dict[str, Tensor]:
        # not settled: when a checkpoint is written must not change how later sequences are numbered
        state = {"scores": self._scores, **self._trie.state_dict()}
        if self._reward is not None:
            return {"counts": self._counts, **state}
        if self._pending:
            state["waiting"], state["waiting_scores"] = (
                torch.cat(column) for column in zip(*self._pending, strict=True)
            )
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._trie.load_state_dict(state)
        self._scores = state["scores"]
        self._pending = [(state["waiting"], state["waiting_scores"])] if "waiting" in state else []
        self._num_pending = sum(len(scores) for _, scores in self._pending)
        if self._reward is not None:
            self._counts = state["counts"]
        if self._table is not None:
            self._table.fill(np.nan)
            for sequences, scores in ((self._trie.sequences, self._scores), *self._pending):
                self._table[self._codes(sequences)] = scores.numpy()


def _answers(oracle: Callable[[Tensor], Tensor], unseen: Tensor) -> Tensor:
    """Scores of new sequences, float64; [num, L] → [num].

    They are checked before anything is stored: a failing oracle must not leave half an entry behind. And the oracle
    gets a copy, so that what it does to its input stays with it.
    """
    return checked_scores(oracle(torch.from_numpy(unseen.numpy().copy())), len(unseen))


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
    values = tensor.numpy()
    # not a number fails both
    if expected and not (np.minimum.reduce(values) >= 0.0 and np.maximum.reduce(values) <= MAX_SCORE):
        bad = ~((tensor >= 0) & (tensor <= MAX_SCORE))
        raise OracleError(
            f"the oracle returned {float(tensor[bad][0])} for {int(bad.sum())} of {expected} sequences; "
            f"scores must be neither negative nor above {MAX_SCORE:g}, so shift, clip or repair them"
        )
    return tensor
