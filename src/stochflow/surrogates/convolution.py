"""An ensemble of small convolutional networks of the score: what matters is whether a motif is there, not where."""

import torch
from torch import Tensor

from stochflow.surrogates.base import State
from stochflow.surrogates.network_ensemble import NUM_MEMBERS, NetworkEnsemble

NUM_FILTERS = 32
_REACH = 9  # letters that a filter sees
_HIDDEN = 48


class ConvolutionEnsemble(NetworkEnsemble):
    """Networks of one convolution, its maximum and its mean over all positions, and a hidden layer.

    >>> tokens = torch.randint(4, (600, 12), generator=torch.Generator().manual_seed(0))
    >>> scores = (tokens.unfold(1, 2, 1) == torch.tensor([0, 1])).all(dim=-1).any(dim=-1).double()
    >>> ensemble = ConvolutionEnsemble(4, 12)
    >>> ensemble.fit(tokens, scores)
    >>> ensemble.leave_one_out().r_squared > 0.5
    True
    """

    learning_rate, decay = 2e-2, 1e-4

    @property
    def activations(self) -> int:
        return NUM_MEMBERS * NUM_FILTERS * self.length

    def first_weights(self) -> State:
        num_points, reach = self.distance.embedding.shape[1], min(_REACH, self.length)
        return {
            "filters": self.drawn(num_points * reach, NUM_MEMBERS * NUM_FILTERS, num_points, reach),
            "hidden": self.drawn(2 * NUM_FILTERS, NUM_MEMBERS, 2 * NUM_FILTERS, _HIDDEN),
            "output": self.drawn(_HIDDEN, NUM_MEMBERS, _HIDDEN, 1),
            "filter_bias": torch.zeros(NUM_MEMBERS * NUM_FILTERS),
            "hidden_bias": torch.zeros(NUM_MEMBERS, 1, _HIDDEN),
            "output_bias": torch.zeros(NUM_MEMBERS, 1, 1),
        }

    def forward(self, points: Tensor, weights: State) -> Tensor:
        # one product of matrices: conv1d takes more than twice as long with so few channels
        windows = points.unfold(1, weights["filters"].shape[-1], 1)
        rows, filters = windows.flatten(2).flatten(0, 1), weights["filters"].flatten(1).t()
        seen = torch.addmm(weights["filter_bias"], rows, filters).relu().unflatten(0, windows.shape[:2])
        seen = torch.stack([seen.amax(dim=1), seen.mean(dim=1)], dim=-1)
        features = seen.view(len(points), NUM_MEMBERS, 2 * NUM_FILTERS).transpose(0, 1)
        hidden = torch.baddbmm(weights["hidden_bias"], features, weights["hidden"]).relu()
        return torch.baddbmm(weights["output_bias"], hidden, weights["output"]).squeeze(-1).t()
