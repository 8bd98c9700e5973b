"""Training of the forecasting network on residuals of the linear ensemble, with early stopping by held-out CRPS."""

import copy
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from stochflow.forecasting.config import NUM_HEADS, ForecastConfig
from stochflow.forecasting.data.series import Array, Index, Series
from stochflow.forecasting.evaluation.crps import fair_crps
from stochflow.forecasting.model.context import ContextWindows, context_vectors, context_windows, static_codes
from stochflow.forecasting.model.linear_ensemble import LinearEnsemble
from stochflow.forecasting.model.linear_models import LinearModels, fit_linear_models
from stochflow.forecasting.model.losses import forecast_loss
from stochflow.forecasting.model.network import ForecastNetwork
from stochflow.forecasting.model.paths import join, path_starts, sample_paths
from stochflow.forecasting.model.seasonality import Seasonality
from stochflow.forecasting.model.stages import Report, Stage, no_report
from stochflow.forecasting.model.state_features import residual_window, state_features
from stochflow.models.context import ContextConfig

# spacing of the intentions around zero and the largest one, in standard deviations of the residuals
_INTENTION_UNIT, _INTENTION_REACH = 0.35, 4.0
# held out of a series: this share, or so many horizons of a short one, but at most the last share
_HELD_OUT, _HELD_OUT_HORIZONS, _MAX_HELD_OUT = 0.2, 16, 0.35
# held-out origins of all series together, as far as every series has so many
_MAX_ORIGINS, _MIN_ORIGINS = 512, 4
# a batch with context has at most this share of all states, but at least so many
_BATCH_SHARE, _MIN_BATCH = 1 / 8, 128
# observed values that must remain for training
_MIN_TRAINED = 36
# horizons of held-out data at which the discount of the network's weight is one half
_HALF_WEIGHT = 5.0


@dataclass(frozen=True)
class TrainingStates:
    """States: features [N, D], the residuals that followed, sampling weights, series and time of each, [N].

    Rows of one series and ensemble member are consecutive in time and have the same `block`.
    """

    features: Tensor
    residuals: Tensor
    weights: Tensor
    series: Tensor
    time: Tensor
    block: Tensor

    def draw(self, num: int, run: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """About `num` rows in runs of up to `run` consecutive ones.

        Returns:
            index of each row, number of the run it belongs to, and index of the first row of each run.
        """
        first = torch.multinomial(self.weights, max(num // run, 1), replacement=True, generator=generator)
        index = first.unsqueeze(-1) + torch.arange(run)
        inside = index < len(self.block)
        index = index.where(inside, 0)
        belongs = inside & (self.block[index] == self.block[first].unsqueeze(-1))
        return index[belongs], torch.arange(len(first)).unsqueeze(-1).expand_as(index)[belongs], first


def training_states(
    panel: list[Series], models: LinearModels, until: list[int], num_members: int, stride: int = 1
) -> TrainingStates:
    """A row per series, leading ensemble member and time before `until` with a known residual.

    Members count by their weight, series equally. Members are sorted by their errors: the first `num_members` lead.
    """
    parts: list[tuple[Tensor, ...]] = []
    for number, (series, ensemble, end) in enumerate(zip(panel, models.ensembles, until, strict=True)):
        leading = np.arange(min(num_members, len(ensemble.weight)))
        for member in leading:
            times = np.flatnonzero(np.isfinite(ensemble.residuals[member, :end]))[::stride]
            features = features_at(series, ensemble, int(member), times)
            residuals = torch.as_tensor(ensemble.residuals[member, times])
            share = float(ensemble.weight[member] / ensemble.weight[leading].sum())
            weight = torch.full((len(times),), share / len(times))
            place = torch.full((len(times),), number), torch.as_tensor(times), torch.full((len(times),), len(parts))
            parts.append((features, residuals, weight, *place))
    return TrainingStates(*(torch.cat(column) for column in zip(*parts, strict=True)))


def features_at(series: Series, ensemble: LinearEnsemble, member: int, times: Index) -> Tensor:
    """State features before each time, from the observed values up to then, [times, D]."""

    def windows(array: Array, width: int, fill: float) -> Tensor:
        padded = np.concatenate([np.full(width, fill), array])
        return torch.as_tensor(np.lib.stride_tricks.sliding_window_view(padded, width)[times])

    z = ensemble.values[member]
    residuals = windows(np.nan_to_num(ensemble.residuals[member]), residual_window(ensemble.seasonality), 0.0)
    values = windows(z, ensemble.seasonality.window, float(z[0]))
    fitted, exogenous = torch.as_tensor(ensemble.fitted[member, times]), torch.as_tensor(series.exogenous[times])
    return state_features(residuals, values, fitted, exogenous, ensemble.seasonality)


@dataclass
class TrainedNetwork:
    """A network with its validation results.

    Attributes:
        network: None if the linear ensemble alone was better.
        name: "none", "mlp" or "transformer".
        gain: relative reduction of the linear ensemble's CRPS on held-out origins.
        error: standard error of the gain.
        evidence: number of horizons that the held-out origins span.
        steps: updates at which the gain was reached.
        history: (updates, gain) at every validation.
    """

    network: ForecastNetwork | None
    name: str
    gain: float = 0.0
    error: float = 0.0
    evidence: float = 0.0
    steps: int = 0
    history: list[tuple[int, float]] = field(default_factory=list)

    @property
    def network_weight(self) -> float:
        """Share of the paths that follow the network: P(gain > 0), discounted if few horizons were held out."""
        if self.network is None:
            return 0.0
        better = NormalDist().cdf(self.gain / max(self.error, 1e-9))
        return better * self.evidence / (self.evidence + _HALF_WEIGHT)


def hold_out(
    panel: list[Series],
    horizon: int,
    num_origins: int,
    max_horizons: int | None = None,
    min_trained: int = _MIN_TRAINED,
) -> tuple[list[int], list[list[int]]]:
    """End of the training data and validation origins after it, per series; no origins if too little was observed.

    With `max_horizons`, at most that many horizons are held out, however long the series is. `min_trained` observed
    values remain before them.
    """
    ends, origins = [], []
    for series in panel:
        num = len(series)
        room = int(min(_MAX_HELD_OUT * num, max(_HELD_OUT_HORIZONS * horizon, _HELD_OUT * num)))
        room = room if max_horizons is None else min(room, max_horizons * horizon)
        end = num - room
        enough = room >= horizon and series.observed[:end].sum() >= min_trained
        places = {int(place) for place in np.linspace(end, num - horizon, num_origins)} if enough else set()
        usable = sorted(place for place in places if series.observed[place : place + horizon].any())
        ends.append(end if usable else num)
        origins.append(usable)
    return ends, origins


def train_network(
    panel: list[Series],
    seasonality: Seasonality,
    horizon: int,
    config: ForecastConfig,
    categories: tuple[int, ...] = (),
    report: Report = no_report,
) -> TrainedNetwork:
    """The candidate network with the lowest held-out CRPS, or none; the linear models are fitted before the origins."""
    num_origins = min(config.validation_origins, max(_MAX_ORIGINS // max(len(panel), 1), _MIN_ORIGINS))
    ends, origins = hold_out(panel, horizon, num_origins)
    nothing = TrainedNetwork(None, "none")
    if config.network == "none" or config.max_steps == 0 or not any(origins):
        return nothing
    models = fit_linear_models(panel, seasonality, config, ends, report)
    validation = Validation(panel, models, origins, horizon, config)
    states = training_states(panel, models, ends, config.train_members, config.stride)
    results = [_train(name, states, validation, categories, config, report) for name in candidates(panel, config)]
    best = max(results, key=lambda trained: trained.gain)
    return best if best.gain > config.min_gain else nothing


def candidates(panel: list[Series], config: ForecastConfig) -> list[str]:
    """Networks to compare; the context encoder is slow to train and needs many values."""
    if config.network != "auto":
        return [config.network]
    large = sum(series.observed.sum() for series in panel) >= config.context_min_values
    return ["mlp", "transformer"] if large else ["mlp"]


class Validation:
    """CRPS of sampled paths on held-out origins, relative to that of the linear ensemble."""

    def __init__(
        self, panel: list[Series], models: LinearModels, origins: list[list[int]], horizon: int, config: ForecastConfig
    ) -> None:
        used = [(index, places) for index, places in enumerate(origins) if places]
        self.models, self.paths, self.seed = models, config.validation_paths, config.seed
        self.horizon, self.panel = horizon, panel
        generator = torch.Generator().manual_seed(config.seed)
        self.start = join(
            [
                path_starts(
                    panel[index], models.ensembles[index], places, horizon, self.paths, models.past[index], generator
                )
                for index, places in used
            ]
        )
        ahead = [(panel[index], np.array(places)[:, None] + np.arange(horizon)) for index, places in used]
        self.truth = torch.as_tensor(np.concatenate([series.y[at] for series, at in ahead]))
        self.observed = torch.as_tensor(np.concatenate([series.observed[at] for series, at in ahead]))
        self.series = torch.cat([torch.full((len(places),), index) for index, places in used])
        self.origins = torch.cat([torch.as_tensor(places) for _, places in used])
        self.linear_score = self._scores(None, None)

    def _scores(self, network: ForecastNetwork | None, contexts: Tensor | None) -> Tensor:
        """Mean CRPS per origin, NaN where nothing was observed, [origins]."""
        generator = torch.Generator().manual_seed(self.seed)
        drawn = sample_paths(self.start, self.models, network, generator, contexts)
        scores = fair_crps(drawn.view(len(self.truth), self.paths, -1), self.truth)
        return torch.where(self.observed, scores, torch.nan).nanmean(dim=-1)

    def gain(self, network: ForecastNetwork, windows: ContextWindows | None) -> tuple[float, float, float]:
        """Relative CRPS reduction, mean over series; its standard error; horizons spanned.

        Origins closer than a horizon share values, so the standard error counts a horizon as one observation.
        """
        contexts = context_vectors(network, self.panel, windows, self.series, self.origins)
        saved = self.linear_score - self._scores(network, contexts)
        means, variances, evidence = [], [], 0.0
        for index in self.series.unique():
            mine = (self.series == index) & torch.isfinite(saved)
            scale = self.linear_score[mine].mean().clamp_min(1e-12)
            span = float((self.origins[mine].max() - self.origins[mine].min()) / self.horizon + 1)
            evidence += span
            means.append(saved[mine].mean() / scale)
            variances.append((saved[mine] / scale).var(correction=0) / min(span, float(mine.sum())))
        mean, variance = torch.stack(means).mean(), torch.stack(variances).mean() / len(means)
        return float(mean), float(variance.sqrt()), evidence


def new_network(
    name: str, num_features: int, num_inputs: int, categories: tuple[int, ...], config: ForecastConfig
) -> ForecastNetwork:
    """A new network, whose forecast is the linear ensemble's; `num_inputs` features per step of the context."""
    half = config.num_intentions // 2
    grid = torch.linspace(-1, 1, 2 * half + 1, dtype=torch.float64)
    intentions = _INTENTION_UNIT * torch.sinh(grid * np.arcsinh(_INTENTION_REACH / _INTENTION_UNIT))
    context = None
    if name == "transformer":
        context = ContextConfig(
            width=config.context_width,
            heads=NUM_HEADS,
            layers=config.context_layers,
            position=config.position,
            max_length=config.context_length,
            num_features=num_inputs,
        )
    network = ForecastNetwork(num_features, config.width, intentions, config.num_bins, context, categories)
    network.initialise(torch.Generator().manual_seed(config.seed))
    return network


def _train(
    name: str,
    states: TrainingStates,
    validation: Validation,
    categories: tuple[int, ...],
    config: ForecastConfig,
    report: Report,
) -> TrainedNetwork:
    """AdamW on random states; the averaged weights with the best validation CRPS are kept, or none."""
    panel, models = validation.panel, validation.models
    windows = context_windows(panel, models, config.context_length) if name == "transformer" else None
    num_inputs = windows.features.shape[1] if windows is not None else 0
    network = new_network(name, states.features.shape[1], num_inputs, categories, config)
    network.standardise(states.features)
    generator = torch.Generator().manual_seed(config.seed + 1)
    optimiser = torch.optim.AdamW(network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
    averaged, codes = copy.deepcopy(network), static_codes(panel)
    # prior_strength counts time steps, and a time step has a row per member
    prior = config.prior_strength * config.train_members / len(states.time)
    best = TrainedNetwork(None, name)
    # the context of a path ends before its origin: all states within a horizon share it
    batch_size = config.batch_size if windows is None else _context_batch(len(states.time), config)
    run_length = max(validation.horizon // config.stride, 1) if windows is not None else 1
    for step in range(1, config.max_steps + 1):
        picked, run, first = states.draw(batch_size, run_length, generator)
        series = states.series[first]
        inputs = windows.at(series, states.time[first]) if windows is not None else None
        context = network.context_vector(inputs, codes[series])
        heads = network(states.features[picked], context[run] if context is not None else None)
        loss = forecast_loss(heads, network, models.noise, models.bins, states.residuals[picked], config, generator)
        loss = loss + prior * network.prior_penalty(heads)
        if config.objective == "sgfn-db":
            # the flow of an initial state is the partition function of its context: log Z(c) = log F(s_0|c)
            entering = heads.log_flow[picked == first[run]] - network.log_z(context)
            loss = loss + entering.square().mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        with torch.no_grad():
            for mean, now in zip(averaged.parameters(), network.parameters(), strict=True):
                mean.lerp_(now, 1 - config.averaging)
        if step % config.check_every == 0:
            gain, error, evidence = validation.gain(averaged, windows)
            best.history.append((step, gain))
            report(Stage(f"{name} network", step, config.max_steps, gain))
            if gain > best.gain:
                best = TrainedNetwork(copy.deepcopy(averaged), name, gain, error, evidence, step, best.history)
            elif step - best.steps >= config.patience * config.check_every:
                break
    return best


def _context_batch(num_states: int, config: ForecastConfig) -> int:
    """States per update with context: many updates on the few windows of a short series would be slow and no better."""
    return min(config.batch_size, max(int(_BATCH_SHARE * num_states), _MIN_BATCH))
