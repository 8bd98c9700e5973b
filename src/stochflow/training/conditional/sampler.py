"""The conditional sampler: a context encoder in front of a flow network."""

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from stochflow.config.context import ContextConfig, PretrainingConfig
from stochflow.environments.sequences.multi_task import tasks_of_rows
from stochflow.models.base import Sampler
from stochflow.models.context import ContextEncoder
from stochflow.models.evaluation import AtPrefixes
from stochflow.models.flow_network import FlowNetwork
from stochflow.models.prefix_sampler import NetworkSampler
from stochflow.sampling.policies import NetworkPolicy
from stochflow.sampling.rollout import Walk
from stochflow.training.conditional.support import Support, num_features, support_features
from stochflow.truth.prefix_tree import policy_log_marginals, terminal_log_probs


class ConditionalSampler(nn.Module):
    """π(a|s,c) and log F(s|c) with the context c = encoder({(x_i, score_i)}) of a support set.

    >>> network = FlowNetwork(num_tokens=4, length=8, kmers=(1, 3), width=16, num_layers=1, context_width=8)
    >>> sampler = ConditionalSampler(network, PretrainingConfig(context_width=8))
    >>> sampler.initialise(torch.Generator().manual_seed(0))
    >>> support = Support(torch.zeros(2, 5, 8, dtype=torch.int64), torch.rand(2, 5, dtype=torch.float64))
    >>> sampler.context(support).shape
    torch.Size([2, 8])
    """

    def __init__(self, network: FlowNetwork, settings: PretrainingConfig) -> None:
        super().__init__()
        self.encoder = ContextEncoder(
            ContextConfig(
                width=settings.context_width,
                heads=settings.context_heads,
                layers=settings.context_layers,
                num_features=num_features(network.num_tokens, network.length),
            )
        )
        self.network = network

    def initialise(self, generator: torch.Generator) -> None:
        """Draw all weights from `generator`."""
        self.encoder.initialise(generator)
        self.network.initialise(generator)

    def context(self, support: Support) -> Tensor:
        """c of each support set; tokens [batch, num, L] and scores [batch, num] → [batch, context_width]."""
        features = support_features(support, self.network.num_tokens).to(self.network.device)
        return self.encoder(features=features).pooled

    @torch.no_grad()
    def given(self, support: Support) -> FlowNetwork:
        """A copy of the flow network for the task of one support set, tokens [num, L]: to sample, evaluate or train."""
        network = copy.deepcopy(self.network)
        network.context.copy_(self.context(Support(support.tokens[None], support.scores[None]))[0])
        return network


class ConditionalPolicy(NetworkPolicy):
    """π(a|s,c) in an environment of several tasks; an object is a task and a sequence, as in `MultiTaskEnvironment`.

    Args:
        contexts: c of every task, [num_tasks, context_width].
    """

    def __init__(self, network: FlowNetwork, contexts: Tensor) -> None:
        super().__init__(network)
        self._contexts = contexts

    def sampler(self, batch_size: int, generator: torch.Generator) -> Sampler:
        return NetworkSampler(self._network, batch_size, self._of_rows(batch_size))

    def terminal_log_probs(self, environment: Any) -> Tensor:
        """One sweep down the prefix tree per task."""
        trees = ((level.cpu() for level in self._network.tree_log_policies(context)) for context in self._contexts)
        tasks = [terminal_log_probs(policy_log_marginals(tree, environment.channel)) for tree in trees]
        return torch.cat(tasks) - self._log_num_tasks

    def log_probs(self, walk: Walk, environment: Any) -> Tensor:
        return super().log_probs(walk, environment) - self._log_num_tasks

    @property
    def _log_num_tasks(self) -> float:
        return math.log(len(self._contexts))

    def _of_rows(self, num_rows: int) -> Tensor:
        return self._contexts[tasks_of_rows(num_rows, len(self._contexts))]

    @torch.no_grad()
    def _log_policy(self, outcomes: Tensor) -> Tensor:
        where = AtPrefixes(outcomes, context=self._of_rows(len(outcomes)))
        return self._network.evaluate(where).heads().log_policy[:, :-1].cpu()
