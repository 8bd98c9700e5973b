"""A random forest of the score, with trees by scikit-learn (extra `forest`)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stochflow.core.extras import extra
from stochflow.surrogates.base import (
    HeldOut,
    Prediction,
    State,
    Surrogate,
    check_rows,
    nothing_held_out,
    row_weights,
    unfitted,
    unit_of,
    wide_deviation,
    window_rows,
)
from stochflow.surrogates.letter_distances import LetterDistance, hamming

WINDOW = 5000
NUM_TREES = 100
_SHARE = 1.0 / 3.0  # of the features that a split chooses from
_BLOCK = 2**24  # features of one block: 64 megabytes
_LEAST = 1e-3  # deviation of trees that agree, relative to that of the scores


class Forest(Surrogate):
    """The mean of regression trees, each grown on a bootstrap sample; its deviation is that of the trees.

    Features are the embeddings of the letters: one-hot, bits, or BLOSUM62 coordinates. Rows are held out by the trees
    whose sample does not have them. Of many rows the forest keeps a window, one half the best and the other the newest.

    Args:
        num_tokens, length: K and L.
        distance: of letters; Hamming by default.
        seed: of the bootstrap samples and the splits; a fit depends on it and on the rows alone.
        num_trees: of the forest.
        window: most rows that are fitted.
    """

    def __init__(
        self,
        num_tokens: int,
        length: int,
        distance: LetterDistance | None = None,
        *,
        seed: int = 0,
        num_trees: int = NUM_TREES,
        window: int = WINDOW,
    ) -> None:
        self._sklearn: Any = extra("sklearn.tree", "forest")
        self.distance = distance or hamming(num_tokens)
        self.seed, self.num_trees, self.window, self._length = seed, num_trees, window, length
        self._rows: _Rows | None = None
        self._trees: list[tuple[Any, Tensor]] = []  # each with how often its sample has every row

    def fit(self, tokens: Tensor, scores: Tensor, variances: Tensor | None = None) -> None:
        check_rows(tokens, scores, variances)
        rows = window_rows(scores, self.window)
        weights = torch.ones(len(rows), dtype=torch.float64)
        if variances is not None:
            weights = row_weights(scores[rows], variances[rows])
        self._grow(_Rows(rows, tokens[rows], scores[rows].double(), weights))

    def predict(self, tokens: Tensor) -> Prediction:
        if self._rows is None:
            return unfitted(len(tokens))
        every = torch.tensor(True)
        moments = [_Moments.of(self._votes(block, every)) for block in self._blocks(tokens)]
        means, deviations = (torch.cat(parts) for parts in zip(*(m.prediction for m in moments), strict=True))
        return self._rows.prediction(means, deviations)

    def predict_mean(self, tokens: Tensor) -> Tensor:
        if self._rows is None:
            return unfitted(len(tokens)).mean
        means = torch.zeros(len(tokens), dtype=torch.float64)
        for total, block in zip(self._blocks(means), self._blocks(tokens), strict=True):
            for said in self._said(block):
                total += said
        return unit_of(self._rows.scores) * (means / self.num_trees)

    def leave_one_out(self) -> HeldOut:
        """Rows that some trees have not seen, predicted by these."""
        rows = self._rows
        if rows is None:
            return nothing_held_out()
        moments = _Moments.of(self._votes(rows.tokens, None))
        known = (moments.num > 0).nonzero().squeeze(1)
        means, deviations = moments.prediction
        prediction = rows.prediction(means, deviations)
        return HeldOut(rows.rows[known], rows.scores[known], prediction[known])

    def state_dict(self) -> State:
        return {} if self._rows is None else dict(vars(self._rows))

    def load_state_dict(self, state: State) -> None:
        """Grow the same trees again."""
        self._rows, self._trees = None, []
        if state:
            self._grow(_Rows(**state))

    def _grow(self, rows: "_Rows") -> None:
        generator = torch.Generator().manual_seed(self.seed)
        points, targets = self.distance.points(rows.tokens).numpy(), rows.targets.numpy()
        self._rows, self._trees = rows, []
        for _ in range(self.num_trees):
            drawn = torch.randint(len(targets), (len(targets),), generator=generator)
            counts = drawn.bincount(minlength=len(targets))
            seed = int(torch.randint(2**31, (1,), generator=generator))
            tree = self._sklearn.DecisionTreeRegressor(max_features=_SHARE, random_state=seed)
            tree.fit(points, targets, sample_weight=(counts * rows.weights).numpy(), check_input=False)
            self._trees.append((tree, counts))

    def _votes(self, tokens: Tensor, voting: Tensor | None) -> Iterator[tuple[Tensor, Tensor]]:
        """What every tree says, and whether it may vote; by default where its sample does not have the row."""
        for said, (_, counts) in zip(self._said(tokens), self._trees, strict=True):
            yield said, (counts == 0) if voting is None else voting.expand(len(said))

    def _said(self, tokens: Tensor) -> Iterator[Tensor]:
        """What every tree says, [num]."""
        points = self.distance.points(tokens).numpy()
        for tree, _ in self._trees:
            yield torch.from_numpy(tree.tree_.predict(points)[:, 0])

    def _blocks(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Rows of designs in blocks of bounded memory."""
        return rows.split(max(1, _BLOCK // (self._length * self.distance.embedding.shape[1])))


@dataclass(frozen=True)
class _Rows:
    """What a forest is grown on: which rows of the data, tokens [num, L], scores [num] and weights [num]."""

    rows: Tensor
    tokens: Tensor
    scores: Tensor
    weights: Tensor

    @property
    def targets(self) -> Tensor:
        """Scores in units of their size, [num]."""
        return self.scores / unit_of(self.scores)

    def prediction(self, means: Tensor, deviations: Tensor) -> Prediction:
        """In units of the scores, with a deviation above zero."""
        unit, spread = unit_of(self.scores), float(self.targets.std(correction=0))
        least = _LEAST * spread if spread > 0.0 else wide_deviation(self.targets)
        return Prediction(unit * means, unit * deviations.clamp(min=least))


@dataclass(frozen=True)
class _Moments:
    """Number, sum and sum of squares of the votes for every row, [num] each."""

    num: Tensor
    sum: Tensor
    squares: Tensor

    @classmethod
    def of(cls, votes: Iterator[tuple[Tensor, Tensor]]) -> "_Moments":
        num = total = squares = torch.zeros((), dtype=torch.float64)
        for said, may in votes:
            num, total, squares = num + may, total + said * may, squares + said.square() * may
        return cls(num, total, squares)

    @property
    def prediction(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the votes, [num] each."""
        num = self.num.clamp(min=1.0)
        means = self.sum / num
        return means, (self.squares / num - means.square()).clamp(min=0.0).sqrt()
