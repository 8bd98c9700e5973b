"""The conditional sampler: a context encoder in front of a flow network."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stochflow.experiments.conditional.support import Support, num_features, support_features
from stochflow.models.context import ContextConfig, ContextEncoder
from stochflow.models.flow_network import FlowNetwork


@dataclass(frozen=True)
class ConditionalSettings:
    """How the conditional sampler is built and pre-trained.

    Attributes:
        support_size: measured sequences in a context; all of them are oracle calls.
        context_width, context_heads, context_layers: the encoder; without layers the context is a mean.
        kmers, width, num_layers: the flow network, as in `ModelConfig`.
        steps: updates; each learns from `tasks_per_step` tasks and contexts.
        rows_per_level: states per depth and task.
        relabelled: share of tasks whose letters are renamed at random, so that the context must be read.
        learning_rate, warmup, clip: Adam, with the schedule of the trainer.
        flow_weight: weight of the loss of log F.
    """

    support_size: int = 256
    context_width: int = 64
    context_heads: int = 4
    context_layers: int = 0
    kmers: tuple[int, ...] = (1, 3, 5)
    width: int = 128
    num_layers: int = 2
    steps: int = 1500
    tasks_per_step: int = 4
    rows_per_level: int = 64
    relabelled: float = 0.5
    learning_rate: float = 3e-3
    warmup: float = 0.05
    clip: float = 1.0
    flow_weight: float = 0.1


class ConditionalSampler(nn.Module):
    """π(a|s,c) and log F(s|c) with the context c = encoder({(x_i, score_i)}) of a support set."""

    def __init__(self, num_tokens: int, length: int, settings: ConditionalSettings) -> None:
        super().__init__()
        self.num_tokens = num_tokens
        width = settings.context_width
        self.encoder = ContextEncoder(
            ContextConfig(
                width=width,
                heads=settings.context_heads,
                layers=settings.context_layers,
                num_features=num_features(num_tokens, length),
            )
        )
        self.network = FlowNetwork(
            num_tokens, length, settings.kmers, settings.width, settings.num_layers, context_width=width
        )

    def initialise(self, generator: torch.Generator) -> None:
        """Draw all weights from `generator`."""
        self.encoder.initialise(generator)
        self.network.initialise(generator)

    def context(self, support: Support) -> Tensor:
        """c of each support set; tokens [batch, num, L] and scores [batch, num] → [batch, context_width]."""
        return self.encoder(features=support_features(support, self.num_tokens)).pooled

    @torch.no_grad()
    def given(self, support: Support) -> FlowNetwork:
        """A copy of the flow network for the task of one support set, tokens [num, L]: to sample, judge or train."""
        network = copy.deepcopy(self.network)
        network.context.copy_(self.context(Support(support.tokens[None], support.scores[None]))[0])
        return network
