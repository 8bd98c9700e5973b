"""Learners of small sequence tasks, whose network says of every prefix what a test decides."""

import math
from typing import Any

import torch
from torch import Tensor

from stochflow.config.schema import Config
from stochflow.core.random import RandomStreams
from stochflow.environments.channels import Channel
from stochflow.environments.rewards import Reward
from stochflow.models.dynamics.tabular import KnownDynamics
from stochflow.models.evaluation import AlongPaths, AutogradEvaluation, Heads, PathHeads
from stochflow.models.flow_network import FlowNetwork, _path_heads
from stochflow.objectives.learners import SequenceLearner
from stochflow.sampling.replay_buffer import ReplayBuffer
from stochflow.sampling.score_memory import ScoreMemory
from tests.small_tasks import scored_environment

PLAIN_REWARD = Reward(beta=1.0, floor=1e-12, ramp=0.0)


class StubNetwork(FlowNetwork):
    """A flow network without a body; a subclass says what `at_every_prefix` and `children_along` answer."""

    engine_applies = False
    device = torch.device("cpu")
    dtype = torch.float32  # of rewards, as in a real network

    def __init__(self, num_tokens: int, length: int) -> None:
        torch.nn.Module.__init__(self)
        self.num_tokens, self.num_actions, self.length = num_tokens, num_tokens, length

    def at_every_prefix(self, tokens: Tensor) -> Heads:
        """Heads at every prefix, the empty one first; [batch, time] → [batch, time + 1, ...]."""
        raise NotImplementedError

    def evaluate(self, where: Any) -> Any:
        """What `at_every_prefix` says, as an evaluation: log-probabilities are their own logits."""
        along = isinstance(where, AlongPaths)
        tokens = where.outcomes if along else where.tokens
        whole = not along or where.ends or where.backward == "learned"
        heads = self.at_every_prefix(tokens if whole else tokens[:, :-1])
        log_completions = self.steps_left(tokens)[: heads.log_flow.shape[1]] * math.log(self.num_tokens)
        raw = torch.cat(
            [heads.log_policy, heads.log_backward, (heads.log_flow - log_completions).unsqueeze(-1)], dim=-1
        )
        num = self.num_tokens

        def arrange(outputs: Tensor) -> Heads | PathHeads:
            log_flow = outputs[..., -1] + log_completions
            found = Heads(outputs[..., :num], outputs[..., num : 2 * num], log_flow)
            return _path_heads(found, tokens.shape[1], where, None) if along else found

        return AutogradEvaluation(raw, arrange)


class AutogradLearner(SequenceLearner):
    """Leaves every loss to autograd: what a stub says need not come from logits, as closed forms take for granted."""

    def is_full(self, batch: Any) -> bool:
        return False


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
        "replay": ReplayBuffer(1000, length),
        "generators": RandomStreams(0),
    }
    return AutogradLearner(**given | parts)
