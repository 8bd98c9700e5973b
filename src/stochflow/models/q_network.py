"""Q(s, ·): the value of every intention at every prefix."""

import copy
import math

import torch
from torch import Tensor, nn

from stochflow.models.flow_network import FlowNetwork
from stochflow.models.initialisation import set_to_zero


class ActionValues(nn.Module):
    """A body like the policy network's own, and one number per intention.

    Q starts from the entropy that the steps after this one can still earn, (L − t − 1)·log K at temperature one, as
    log F does in `FlowNetwork`.
    """

    def __init__(self, network: FlowNetwork, temperature: float) -> None:
        super().__init__()
        self._length, self._entropy = network.length, temperature * math.log(network.num_tokens)
        self._stop = network.stop
        self.body = copy.deepcopy(network.body)
        self.head = nn.Linear(network.policy_head.in_features, network.num_tokens)

    def initialise(self, generator: torch.Generator) -> None:
        self.body.initialise(generator)
        set_to_zero(self.head)

    def forward(self, tokens: Tensor) -> Tensor:
        """Q at every prefix that still has a letter to come, the empty one first; [batch, L] → [batch, L, K]."""
        steps_after = torch.arange(self._length - 1, -1, -1, device=tokens.device, dtype=torch.float32).unsqueeze(-1)
        if self._stop is not None:  # after a stop nothing is left to earn anything by
            stopped = torch.nn.functional.pad((tokens[:, :-1] == self._stop).cumsum(dim=1) > 0, (1, 0)).unsqueeze(-1)
            stopping = torch.arange(self.head.out_features, device=tokens.device) == self._stop
            steps_after = steps_after * ~(stopped | stopping)
        features = self.body.features(self.body.prefix_states(tokens[:, :-1]))
        return self.head(features) + steps_after * self._entropy
