"""The k-mer network at single prefixes of any depth."""

import torch
from scipy import sparse
from torch import Tensor

from stochflow.models.engine.buffers import Buffers
from stochflow.models.engine.prefix_evaluation import EngineEvaluation


class StateEvaluation(EngineEvaluation):
    """Evaluates prefixes of any depth that stand for themselves, where numpy can read the weights."""

    def __init__(self, space: Buffers, bags: sparse.csr_matrix) -> None:
        """All of them at once.

        Args:
            space: with a capacity for them.
            bags: which embeddings add up to each, see `PrefixBody.bags`.
        """
        super().__init__(space)
        self._bags = bags
        sums = bags @ space.table.detach().numpy()
        sums += space.start.detach().numpy()
        self._rows = space.rows(0, len(sums))._replace(sums=torch.from_numpy(sums))
        self._evaluate(self._rows)

    def row_outputs(self) -> Tensor:
        return self._rows.outputs

    def _add_gradients(self, rows: Tensor, into: list[Tensor]) -> None:
        sums = self._add_behind_sums(rows, self._rows, into)
        into[0].add_(torch.from_numpy(self._bags.T @ sums.numpy()))
        into[1].add_(sums.sum(dim=0))
