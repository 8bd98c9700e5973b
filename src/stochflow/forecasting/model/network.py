"""The flow network of a forecast: policy π, dynamics P̂, state flows F, and a context encoder.

An outcome is the binned residual of the linear forecast. The policy intends one of A shifts, the dynamics spread it
over the B bins, and the marginal M(b|s) = Σ_a π(a|s) P̂(b|s,a) is the predictive distribution of one step. All heads
start at zero, where the forecast is that of the linear ensemble with its own residual distribution.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from stochflow.core.logspace import log_marginal, safe_log
from stochflow.forecasting.model.bins import Bins
from stochflow.forecasting.model.residuals import ResidualDistribution
from stochflow.models.context import ContextConfig, ContextEncoder
from stochflow.models.initialisation import initialise_linears

# initial log-odds of an intention against its neighbour closer to zero
INITIAL_FOCUS = 3.0
MAX_LOG_STRETCH = 4.0
# width of the embedding of a static category
CATEGORY_WIDTH = 4
# beyond every standardised residual
_FAR = 1e6


class ForecastHeads(NamedTuple):
    """Outputs of the network at each state.

    Attributes:
        log_policy: log π(a|s), [..., A].
        log_stretch: log scale of the residual distribution below and above zero, [..., 2].
        log_flow: log F(s|c), [...].
        hidden: last hidden layer, which the backward policy reads, [..., width].
    """

    log_policy: Tensor
    log_stretch: Tensor
    log_flow: Tensor
    hidden: Tensor


class ForecastNetwork(nn.Module):
    """An MLP on state features and, if there are any, the context vector and embeddings of static categories."""

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
        """Shifts `intentions` [A], the middle one zero; `categories` counts the codes of each static column."""
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

    def context_vector(self, windows: dict[str, Tensor] | None, codes: Tensor) -> Tensor | None:
        """Embeddings of the static categories and the encoded window, [rows, width]; None if there are neither.

        `windows` are the inputs of the context encoder if there is one, `codes` [rows, columns] the categories.
        """
        parts = [embedding(codes[:, column]) for column, embedding in enumerate(self.embeddings)]
        if self.context is not None and windows is not None:
            parts.append(self.context(**windows).pooled)
        return torch.cat(parts, dim=-1) if parts else None

    def standardise(self, features: Tensor) -> None:
        """Set mean and standard deviation of each feature from a sample [rows, features]."""
        self.feature_mean.copy_(features.mean(dim=0))
        self.feature_std.copy_(features.std(dim=0, correction=0).clamp_min(1e-3))

    def forward(self, features: Tensor, context: Tensor | None = None) -> ForecastHeads:
        """Heads for states [..., features] and, if the network has a context, context vectors [..., width]."""
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

    def prior_penalty(self, heads: ForecastHeads) -> Tensor:
        """Mean squared outputs of the policy and scale heads: zero at the linear forecast, a scalar."""
        return self.policy(heads.hidden).square().mean() + heads.log_stretch.square().sum(dim=-1).mean()

    def log_backward(self, hidden: Tensor, outcomes: Tensor) -> Tensor:
        """Backward policy log π_B(a|s, b), [..., A]."""
        return torch.log_softmax(self.backward_state(hidden) + self.backward_outcome(outcomes), dim=-1)

    def log_z(self, context: Tensor | None) -> Tensor:
        """log Z(c) of contexts [..., width], or one number without a context."""
        if context is None:
            context = self.total_flow.weight.new_zeros(1)
        return self.total_flow(context).squeeze(-1)


def outcome_mass(
    heads: ForecastHeads, intentions: Tensor, noise: ResidualDistribution, low: Tensor, high: Tensor
) -> Tensor:
    """P̂(low < u ≤ high | s, a) of the residual u for finite bounds [..., K] → [..., A, K]."""
    stretch = heads.log_stretch.double().exp()

    def below(bound: Tensor) -> Tensor:
        offset = bound.unsqueeze(-2) - intentions.unsqueeze(-1)
        width = torch.where(offset < 0, stretch[..., :1, None], stretch[..., 1:, None])
        return noise.cdf((offset / width).clamp(-_FAR, _FAR))

    return below(high) - below(low)


def _bounds(bins: Bins) -> Tensor:
    """Edges with both ends, [B + 1]; 10⁶ stands for infinity, so that gradients stay finite."""
    return torch.cat([bins.edges.new_tensor([-_FAR]), bins.edges, bins.edges.new_tensor([_FAR])])


def log_observed(
    heads: ForecastHeads, network: ForecastNetwork, noise: ResidualDistribution, bins: Bins, outcomes: Tensor
) -> Tensor:
    """log M(b|s) of observed outcomes b, bin indices [...] → [...]."""
    bounds = _bounds(bins)
    low, high = bounds[outcomes].unsqueeze(-1), bounds[outcomes + 1].unsqueeze(-1)
    mass = outcome_mass(heads, network.intentions, noise, low, high).squeeze(-1)
    return safe_log((heads.log_policy.exp() * mass).sum(dim=-1))


def log_outcomes(heads: ForecastHeads, network: ForecastNetwork, noise: ResidualDistribution, bins: Bins) -> Tensor:
    """log P̂(b|s,a) of every bin, [..., A, B]."""
    bounds, shape = _bounds(bins), (*heads.log_flow.shape, bins.num_bins)
    mass = outcome_mass(heads, network.intentions, noise, bounds[:-1].expand(shape), bounds[1:].expand(shape))
    return safe_log(mass)


def forecast_mean(heads: ForecastHeads, network: ForecastNetwork, noise: ResidualDistribution) -> Tensor:
    """Predictive mean of the next residual before binning, Σ_a π(a|s) a plus the mean of the scaled noise, [...]."""
    below, above = noise.partial_means()
    stretch = heads.log_stretch.double().exp()
    intended = heads.log_policy.double().exp() @ network.intentions
    return intended + stretch[..., 0] * below + stretch[..., 1] * above


def log_forecast(heads: ForecastHeads, log_dynamics: Tensor) -> Tensor:
    """Predictive distribution log M(b|s), [..., B]."""
    return log_marginal(heads.log_policy.to(log_dynamics.dtype), log_dynamics)
