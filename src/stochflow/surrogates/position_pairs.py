"""An ensemble of small networks of the score that read letters at pairs of positions: what must fit together."""

import torch
from torch import Tensor
from torch.nn import functional

from stochflow.surrogates.base import State
from stochflow.surrogates.network_ensemble import NUM_MEMBERS, NetworkEnsemble

NUM_CHANNELS = 8
_NUM_SINGLE = 4  # sums over single positions
_HIDDEN = 32
_FIRST_GATE = 0.05
_SPARSITY = 3e-3  # L1 penalty of the gates of one member


class PositionPairEnsemble(NetworkEnsemble):
    """Networks of sums over pairs of positions, Σ_{i<j} g_ij·a(x_i)·b(x_j), sums over single ones, and two layers.

    In every channel all pairs share what two letters are worth together, a(x_i)·b(x_j), and differ by their gate g_ij
    alone. Gates have an L1 penalty: few pairs matter. So what fits together is learned from all pairs at once, and is
    known for letters that a pair was never seen with.

    >>> tokens = torch.randint(4, (600, 10), generator=torch.Generator().manual_seed(0))
    >>> scores = ((tokens[:, 1] + tokens[:, 7] == 3).double() + (tokens[:, 2] + tokens[:, 5] == 3).double()) / 2
    >>> ensemble = PositionPairEnsemble(4, 10)
    >>> ensemble.fit(tokens, scores)
    >>> strongest = ensemble.gates.flatten().topk(2).indices
    >>> sorted((int(pair) // 10, int(pair) % 10) for pair in strongest)
    [(1, 7), (2, 5)]
    """

    learning_rate, decay = 1e-2, 1e-2
    begins_anew = True  # gates that few rows have closed stay closed when more rows arrive

    @property
    def activations(self) -> int:
        return 3 * NUM_MEMBERS * NUM_CHANNELS * self.length

    @property
    def gates(self) -> Tensor:
        """How strong each pair of positions is: |g_ij|, the mean over members and channels; [L, L], zero for i ≥ j."""
        return self._weights["gates"].triu(1).abs().mean(dim=0)

    def first_weights(self) -> State:
        num_points, channels = self.distance.embedding.shape[1], NUM_MEMBERS * NUM_CHANNELS
        inputs = NUM_CHANNELS + _NUM_SINGLE
        return {
            "first": self.drawn(1, num_points, channels),
            "second": self.drawn(1, num_points, channels),
            "gates": self.drawn(1, channels, self.length, self.length) * _FIRST_GATE,
            "single": self.drawn(self.length, self.length * num_points, NUM_MEMBERS * _NUM_SINGLE),
            "hidden": self.drawn(inputs, NUM_MEMBERS, inputs, _HIDDEN),
            "deeper": self.drawn(_HIDDEN, NUM_MEMBERS, _HIDDEN, _HIDDEN),
            "output": self.drawn(_HIDDEN, NUM_MEMBERS, _HIDDEN, 1),
            "hidden_bias": torch.zeros(NUM_MEMBERS, 1, _HIDDEN),
            "deeper_bias": torch.zeros(NUM_MEMBERS, 1, _HIDDEN),
            "output_bias": torch.zeros(NUM_MEMBERS, 1, 1),
        }

    def forward(self, points: Tensor, weights: State) -> Tensor:
        first, second = ((points @ weights[name]).permute(2, 0, 1) for name in ("first", "second"))
        paired = (torch.bmm(first, weights["gates"].triu(1)) * second).sum(dim=-1)  # [channels, num]
        single = (points.flatten(1) @ weights["single"]).t()
        by_member = [each.unflatten(0, (NUM_MEMBERS, -1)) for each in (paired, single)]
        features = torch.cat(by_member, dim=1).transpose(1, 2)
        hidden = functional.gelu(torch.baddbmm(weights["hidden_bias"], features, weights["hidden"]))
        hidden = hidden + functional.gelu(torch.baddbmm(weights["deeper_bias"], hidden, weights["deeper"]))
        return torch.baddbmm(weights["output_bias"], hidden, weights["output"]).squeeze(-1).t()

    def penalty(self, weights: State) -> Tensor:
        return _SPARSITY * weights["gates"].triu(1).abs().sum()
