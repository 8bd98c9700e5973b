"""The flow network of a forecast: intentions π, the world's noise P̂, flows, and the context that they read.

A state's value is a residual around the anchor. The policy intends one of A coarse tokens, the dynamics say in which
of the B fine bins the world puts it, and M(b|s) = Σ_a π(a|s) P̂(b|s,a) is the forecast of one step. All heads start at
zero: then the intention is the anchor itself, and the noise is what the anchor's own errors were.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from stochflow.core.logspace import log_marginal, safe_log
from stochflow.forecasting.model.bins import TokenBins
from stochflow.forecasting.model.residuals import NoiseKernel
from stochflow.models.attention import initialise_linears
from stochflow.models.context import ContextConfig, ContextEncoder

# log-odds of one intention against the next one closer to the anchor, before anything is learned
INITIAL_FOCUS = 3.0
MAX_LOG_STRETCH = 4.0
# numbers that stand for one category of a series
CATEGORY_WIDTH = 4
# beyond every residual, in units of the anchor's noise
_FAR = 1e6


class ForecastHeads(NamedTuple):
    """What the network says of each state.

    Attributes:
        log_policy: log π(a|s), [..., A].
        log_stretch: log of the noise's width below and above its centre, [..., 2].
        log_flow: log F(s|c), [...].
        hidden: what the backward policy starts from, [..., width].
    """

    log_policy: Tensor
    log_stretch: Tensor
    log_flow: Tensor
    hidden: Tensor


class ForecastNetwork(nn.Module):
    """An MLP on the state, and on the context's vector if there is a context encoder."""

    feature_mean: Tensor
    feature_std: Tensor
    intentions: Tensor
    initial_logits: Tensor

    def __init__(
        self,
        num_features: int,
        width: int,
        intentions: Tensor,
        num_bins: int,
        context: ContextConfig | None = None,
        categories: tuple[int, ...] = (),
    ) -> None:
        """A network that aims at `intentions` [A], whose middle is zero; `categories` counts the codes per column."""
        super().__init__()
        self.context = ContextEncoder(context) if context is not None else None
        self.embeddings = nn.ModuleList(nn.Embedding(num, CATEGORY_WIDTH) for num in categories)
        context_width = (context.width if context is not None else 0) + CATEGORY_WIDTH * len(categories)
        self.body = nn.Sequential(
            nn.Linear(num_features + context_width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()
        )
        num_intentions = len(intentions)
        self.policy = nn.Linear(width, num_intentions)
        self.stretch = nn.Linear(width, 2)
        self.flow = nn.Linear(width, 1)
        self.backward_state = nn.Linear(width, num_intentions)
        self.backward_outcome = nn.Embedding(num_bins, num_intentions)
        self.total_flow = nn.Linear(max(context_width, 1), 1)
        distance = (torch.arange(num_intentions) - num_intentions // 2).abs()
        self.register_buffer("intentions", intentions.double())
        self.register_buffer("initial_logits", -INITIAL_FOCUS * distance.float())
        self.register_buffer("feature_mean", torch.zeros(num_features))
        self.register_buffer("feature_std", torch.ones(num_features))

    def initialise(self, generator: torch.Generator) -> None:
        """Draw the body's weights and set every head to zero."""
        initialise_linears(self, generator)
        if self.context is not None:
            self.context.initialise(generator)
        with torch.no_grad():
            for head in (self.policy, self.stretch, self.flow, self.backward_state, self.total_flow):
                head.weight.zero_()
                head.bias.zero_()
            for table in (self.backward_outcome, *self.embeddings):
                table.weight.zero_()

    def thought(self, windows: dict[str, Tensor] | None, codes: Tensor) -> Tensor | None:
        """The context's vector: what the encoder makes of the windows, and what the series is, [rows, width] or None.

        `windows` are the encoder's inputs, needed if there is one; `codes` [rows, columns] number the categories.
        """
        parts = [embedding(codes[:, column]) for column, embedding in enumerate(self.embeddings)]
        if self.context is not None and windows is not None:
            parts.append(self.context(**windows).pooled)
        return torch.cat(parts, dim=-1) if parts else None

    def standardise(self, features: Tensor) -> None:
        """Take the scale of each feature from a sample [rows, features]."""
        self.feature_mean.copy_(features.mean(dim=0))
        self.feature_std.copy_(features.std(dim=0, correction=0).clamp_min(1e-3))

    def forward(self, features: Tensor, context: Tensor | None = None) -> ForecastHeads:
        """Heads for states [..., features] with their context's vector [..., width] if the network has a context."""
        inputs = ((features - self.feature_mean) / self.feature_std).clamp(-6.0, 6.0)
        if context is not None:
            inputs = torch.cat([inputs, context], dim=-1)
        hidden = self.body(inputs)
        return ForecastHeads(
            log_policy=torch.log_softmax(self.policy(hidden) + self.initial_logits, dim=-1),
            log_stretch=self.stretch(hidden).clamp(-MAX_LOG_STRETCH, MAX_LOG_STRETCH),
            log_flow=self.flow(hidden).squeeze(-1),
            hidden=hidden,
        )

    def departure(self, heads: ForecastHeads) -> Tensor:
        """How far the forecast has moved from the bare anchor's: mean squares of what the heads added, a scalar."""
        return self.policy(heads.hidden).square().mean() + heads.log_stretch.square().sum(dim=-1).mean()

    def log_backward(self, hidden: Tensor, outcomes: Tensor) -> Tensor:
        """log π_B(a|s, b): which intention led from here to the outcome, [..., A]."""
        return torch.log_softmax(self.backward_state(hidden) + self.backward_outcome(outcomes), dim=-1)

    def log_z(self, context: Tensor | None) -> Tensor:
        """log Z(c) of contexts [..., width], or one number without a context."""
        if context is None:
            context = self.total_flow.weight.new_zeros(1)
        return self.total_flow(context).squeeze(-1)


def outcome_mass(heads: ForecastHeads, intentions: Tensor, kernel: NoiseKernel, low: Tensor, high: Tensor) -> Tensor:
    """P̂(low < u ≤ high | s, a) for finite bounds [..., K] → [..., A, K]."""
    stretch = heads.log_stretch.double().exp()

    def below(bound: Tensor) -> Tensor:
        offset = bound.unsqueeze(-2) - intentions.unsqueeze(-1)
        width = torch.where(offset < 0, stretch[..., :1, None], stretch[..., 1:, None])
        return kernel.cdf((offset / width).clamp(-_FAR, _FAR))

    return below(high) - below(low)


def _bounds(bins: TokenBins) -> Tensor:
    """Both ends of every bin, [B + 1]; infinity is a million, so that gradients stay finite."""
    return torch.cat([bins.edges.new_tensor([-_FAR]), bins.edges, bins.edges.new_tensor([_FAR])])


def log_observed(
    heads: ForecastHeads, network: ForecastNetwork, kernel: NoiseKernel, bins: TokenBins, tokens: Tensor
) -> Tensor:
    """log M(b|s) of the outcomes that happened, tokens [...] → [...]."""
    bounds = _bounds(bins)
    low, high = bounds[tokens].unsqueeze(-1), bounds[tokens + 1].unsqueeze(-1)
    mass = outcome_mass(heads, network.intentions, kernel, low, high).squeeze(-1)
    return safe_log((heads.log_policy.exp() * mass).sum(dim=-1))


def log_outcomes(heads: ForecastHeads, network: ForecastNetwork, kernel: NoiseKernel, bins: TokenBins) -> Tensor:
    """log P̂(b|s,a) of every bin, [..., A, B]."""
    bounds, shape = _bounds(bins), (*heads.log_flow.shape, bins.num_bins)
    mass = outcome_mass(heads, network.intentions, kernel, bounds[:-1].expand(shape), bounds[1:].expand(shape))
    return safe_log(mass)


def forecast_mean(heads: ForecastHeads, network: ForecastNetwork, kernel: NoiseKernel) -> Tensor:
    """Mean of the next residual, Σ_a π(a|s) a plus that of the stretched noise, before it is put into bins, [...]."""
    below, above = kernel.halves()
    stretch = heads.log_stretch.double().exp()
    intended = heads.log_policy.double().exp() @ network.intentions
    return intended + stretch[..., 0] * below + stretch[..., 1] * above


def log_forecast(heads: ForecastHeads, log_dynamics: Tensor) -> Tensor:
    """log M(b|s), [..., B]."""
    return log_marginal(heads.log_policy.to(log_dynamics.dtype), log_dynamics)
