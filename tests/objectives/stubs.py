"""Learners of small sequence tasks, whose network says of every prefix what a test decides."""

from typing import Any

import torch
from torch import Tensor

from stochflow.config.schema import Config
from stochflow.core.random import Generators
from stochflow.environments.channels import Channel
from stochflow.environments.rewards import Reward
from stochflow.models.dynamics.tabular import KnownDynamics
from stochflow.models.flow_network import FlowNetwork
from stochflow.objectives.learners import SequenceLearner
from stochflow.sampling.replay_buffer import Replay
from stochflow.sampling.score_memory import ScoreMemory
from tests.small_tasks import scored_environment

PLAIN_REWARD = Reward(beta=1.0, floor=1e-12, ramp=0.0)


class StubNetwork(FlowNetwork):
    """A flow network without a body; a subclass says what `all_prefixes` and `child_log_flows` answer."""

    records = False
    device = torch.device("cpu")
    dtype = torch.float32  # of rewards, as in a real network

    def __init__(self, num_tokens: int, length: int) -> None:
        torch.nn.Module.__init__(self)
        self.num_tokens, self.num_actions, self.length = num_tokens, num_tokens, length


def sequence_learner(
    network: FlowNetwork, channel: Channel, config: Config, scores: Tensor | None = None, **parts: Any
) -> SequenceLearner:
    """A learner that knows its channel; `parts` replaces fields."""
    num_tokens, length = network.num_tokens, network.length
    given = {
        "config": config,
        "environment": scored_environment(channel, length, scores),
        "network": network,
        "dynamics": KnownDynamics(channel, length).double(),
        "reward": PLAIN_REWARD,
        "memory": ScoreMemory(num_tokens, length),
        "replay": Replay(1000, length),
        "generators": Generators(0),
    }
    return SequenceLearner(**given | parts)
