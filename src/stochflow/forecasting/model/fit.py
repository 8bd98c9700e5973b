"""Fitting: anchors in closed form, then a network on their residuals, stopped by the CRPS of held-out origins."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stochflow.forecasting.config import NUM_HEADS, ForecastConfig
from stochflow.forecasting.data.series import Array, Series
from stochflow.forecasting.evaluation.crps import fair_crps
from stochflow.forecasting.model.bins import TokenBins, place_bins
from stochflow.forecasting.model.calibration import Verdict
from stochflow.forecasting.model.linear_ensemble import AnchorGrid, Anchors, fit_anchors
from stochflow.forecasting.model.losses import forecast_loss
from stochflow.forecasting.model.network import ForecastNetwork
from stochflow.forecasting.model.paths import join, sample_paths, starts
from stochflow.forecasting.model.residuals import NoiseKernel, fit_kernel
from stochflow.forecasting.model.ridge_ar import Ridge, main_season
from stochflow.forecasting.model.seasonality import Rhythm
from stochflow.forecasting.model.state_features import residual_window, state_features
from stochflow.models.context import ContextConfig

# intentions reach this far, in units of the anchor's noise
_INTENTION_UNIT, _INTENTION_REACH = 0.35, 4.0
# what validation takes of a series: a share, that many horizons if it is short, but never more than the last share
_HELD_OUT, _HELD_OUT_HORIZONS, _MAX_HELD_OUT = 0.2, 16, 0.35
# values that must remain to learn from when some are held out
_MIN_TRAINED = 36
# residuals of a series that are enough to draw the noise's curve
_MOST_RESIDUALS = 200_000
# values, and seasons of them, that a ridge regression with a light penalty needs
_MIN_RIDGE, _MIN_SEASONS = 200, 6
# horizons of held-out data that it takes to half trust a network
_DOUBT = 5.0

# called with the network's name, the number of updates so far and the share of CRPS that it saves
Report = Callable[[str, int, float], None]


def silent(name: str, step: int, gain: float) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class World:
    """Anchors of all series with the noise and the tokens they share, and ridge regressions of the long ones."""

    rhythm: Rhythm
    anchors: list[Anchors]
    ridges: list[Ridge | None]
    kernel: NoiseKernel
    bins: TokenBins


def fit_world(panel: list[Series], rhythm: Rhythm, config: ForecastConfig, until: list[int] | None = None) -> World:
    """Anchors of every series, and ridge regressions of long ones, learned from what comes before `until`."""
    ends = until or [len(series) for series in panel]
    anchors = [
        fit_anchors(series.y, series.observed, series.outside[: len(series)], rhythm, AnchorGrid(), end)
        for series, end in zip(panel, ends, strict=True)
    ]
    residuals, weights = [], []
    for fitted, end in zip(anchors, ends, strict=True):
        known = fitted.residuals[:, :end]
        known = known[:, np.isfinite(known[0])]
        known = known[:, :: -(-known.size // _MOST_RESIDUALS)]
        residuals.append(known.ravel())
        weights.append(np.repeat(fitted.weight / known.shape[1], known.shape[1]))
    pooled = np.concatenate(residuals)
    kernel, bins = fit_kernel(pooled, np.concatenate(weights)), place_bins(pooled, config.num_bins)
    ridges = [_ridge_of(series, fitted, end, config) for series, fitted, end in zip(panel, anchors, ends, strict=True)]
    return World(rhythm, anchors, ridges, kernel, bins)


def _ridge_of(series: Series, anchors: Anchors, end: int, config: ForecastConfig) -> Ridge | None:
    """A regression on the main season of what comes before `end`, if the series is long and it can read all of it."""
    rhythm, known = anchors.rhythm, int(series.observed[:end].sum())
    long = known >= max(config.context_min_values, _MIN_SEASONS * rhythm.season, _MIN_RIDGE)
    readable = series.is_plain(rhythm) and anchors.unit == 1.0
    if config.network == "none" or not config.ridge_share or not long or not readable:
        return None
    return Ridge.fit(series.y[:end], series.observed[:end], main_season(rhythm), anchors.floor)


@dataclass(frozen=True)
class Rows:
    """States to learn from: features [N, D], the residual that followed [N], how often to take each, and where it is.

    Rows of one series and anchor follow one another in time and have the same `block`.
    """

    features: Tensor
    surprises: Tensor
    weights: Tensor
    series: Tensor
    time: Tensor
    block: Tensor

    def draw(self, num: int, run: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """About `num` rows in runs of up to `run` successors: their index, their run's number, and each run's first."""
        first = torch.multinomial(self.weights, max(num // run, 1), replacement=True, generator=generator)
        index = first.unsqueeze(-1) + torch.arange(run)
        inside = index < len(self.block)
        index = index.where(inside, 0)
        belongs = inside & (self.block[index] == self.block[first].unsqueeze(-1))
        return index[belongs], torch.arange(len(first)).unsqueeze(-1).expand_as(index)[belongs], first


def training_rows(panel: list[Series], world: World, until: list[int], num_members: int, stride: int = 1) -> Rows:
    """One row per series, leading anchor and time with a known residual; anchors count by weight, series equally.

    Anchors come in the order of their errors, the plain one last; the first lead.
    """
    parts: list[tuple[Tensor, ...]] = []
    for number, (series, anchors, end) in enumerate(zip(panel, world.anchors, until, strict=True)):
        leading = np.arange(min(num_members, len(anchors.weight)))
        for member in leading:
            times = np.flatnonzero(np.isfinite(anchors.residuals[member, :end]))[::stride]
            features = features_at(series, anchors, int(member), times)
            surprises = torch.as_tensor(anchors.residuals[member, times])
            share = float(anchors.weight[member] / anchors.weight[leading].sum())
            weight = torch.full((len(times),), share / len(times))
            place = torch.full((len(times),), number), torch.as_tensor(times), torch.full((len(times),), len(parts))
            parts.append((features, surprises, weight, *place))
    return Rows(*(torch.cat(column) for column in zip(*parts, strict=True)))


def features_at(series: Series, anchors: Anchors, member: int, times: NDArray[np.intp]) -> Tensor:
    """State features before each time with all values up to then known, [times, D]."""

    def windows(array: Array, width: int, fill: float) -> Tensor:
        padded = np.concatenate([np.full(width, fill), array])
        return torch.as_tensor(np.lib.stride_tricks.sliding_window_view(padded, width)[times])

    z = anchors.values[member]
    residuals = windows(np.nan_to_num(anchors.residuals[member]), residual_window(anchors.rhythm), 0.0)
    values = windows(z, anchors.rhythm.window, float(z[0]))
    fitted, outside = torch.as_tensor(anchors.fitted[member, times]), torch.as_tensor(series.outside[times])
    return state_features(residuals, values, fitted, outside, anchors.rhythm)


@dataclass(frozen=True)
class ContextWindows:
    """What the encoder reads of each series, with `length` absent elements in front, [time, …] end to end."""

    features: Tensor
    positions: Tensor
    present: Tensor
    first: Tensor
    length: int

    def at(self, series: Tensor, origins: Tensor) -> dict[str, Tensor]:
        """Inputs of the encoder for windows that end before each origin; [rows], [rows] → [rows, length, …]."""
        index = (self.first[series] + origins).unsqueeze(-1) + torch.arange(self.length)
        times, present, features = self.positions[index], self.present[index], self.features[index]
        values = window_scaled(features[..., 0], present)
        return {
            "features": torch.cat([values.unsqueeze(-1), features[..., 1:]], dim=-1),
            "times": times - times[:, -1:],
            "present": present,
        }


def window_scaled(values: Tensor, present: Tensor) -> Tensor:
    """Values [rows, length] less their window's mean, over its standard deviation, within ±5; zero where absent.

    The level is not lost: the state's own features tell it to the network.
    """
    num = present.sum(dim=-1, keepdim=True).clamp_min(1)
    known = values.masked_fill(~present, 0.0)
    centred = (known - known.sum(dim=-1, keepdim=True) / num).masked_fill(~present, 0.0)
    spread = (centred.square().sum(dim=-1, keepdim=True) / num).sqrt().clamp_min(1e-3)
    return (centred / spread).clamp(-5.0, 5.0)


def context_windows(panel: list[Series], world: World, length: int) -> ContextWindows:
    """Values and residuals of each series' best anchor, the calendar and all features, by time."""
    features, positions, present, first, total = [], [], [], [], 0
    for series, anchors in zip(panel, world.anchors, strict=True):
        best = 0  # anchors come in the order of their errors
        columns = [
            anchors.values[best][:, None],
            np.arcsinh(np.nan_to_num(anchors.residuals[best]))[:, None],
            series.outside[: len(series)],
            series.past,
        ]
        block = np.concatenate(columns, axis=1)
        features.append(np.concatenate([np.zeros((length, block.shape[1])), block]))
        positions.append(np.concatenate([np.zeros(length), series.positions]))
        present.append(np.concatenate([np.zeros(length, dtype=bool), series.observed]))
        first.append(total)
        total += length + len(series)
    return ContextWindows(
        torch.as_tensor(np.concatenate(features), dtype=torch.float32),
        torch.as_tensor(np.concatenate(positions), dtype=torch.float32),
        torch.as_tensor(np.concatenate(present)),
        torch.as_tensor(first),
        length,
    )


@dataclass
class Trained:
    """A network and what its validation said: the share of CRPS that it saves, with error, and after how many updates.

    `trust` is the probability, as far as the held-out origins tell, that the network is better than the bare anchor,
    discounted when there were few of them: `evidence` counts the horizons that they span. `verdicts` holds, by id of
    every series that was judged, what is to be done with its paths, and `direct` the values that direct networks expect
    after its end, [values, horizon].
    """

    network: ForecastNetwork | None
    name: str
    gain: float = 0.0
    error: float = 0.0
    evidence: float = 0.0
    steps: int = 0
    history: list[tuple[int, float]] = field(default_factory=list)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    direct: dict[str, Array] = field(default_factory=dict)

    @property
    def trust(self) -> float:
        if self.network is None:
            return 0.0
        better = NormalDist().cdf(self.gain / max(self.error, 1e-9))
        return better * self.evidence / (self.evidence + _DOUBT)


def hold_out(
    panel: list[Series], horizon: int, num_origins: int, most_horizons: int | None = None
) -> tuple[list[int], list[list[int]]]:
    """End of training and the validation origins after it, per series; none if too little was observed.

    With `most_horizons` no more than so many horizons are held out, however long the series is.
    """
    ends, origins = [], []
    for series in panel:
        num = len(series)
        room = int(min(_MAX_HELD_OUT * num, max(_HELD_OUT_HORIZONS * horizon, _HELD_OUT * num)))
        room = room if most_horizons is None else min(room, most_horizons * horizon)
        end = num - room
        enough = room >= horizon and series.observed[:end].sum() >= _MIN_TRAINED
        places = {int(place) for place in np.linspace(end, num - horizon, num_origins)} if enough else set()
        judged = sorted(place for place in places if series.observed[place : place + horizon].any())
        ends.append(end if judged else num)
        origins.append(judged)
    return ends, origins


def train_network(
    panel: list[Series],
    rhythm: Rhythm,
    horizon: int,
    config: ForecastConfig,
    categories: tuple[int, ...] = (),
    report: Report = silent,
) -> Trained:
    """The network that the held-out origins prefer, or none; what the anchors learn from ends before the origins."""
    ends, origins = hold_out(panel, horizon, config.validation_origins)
    nothing = Trained(None, "none")
    if config.network == "none" or config.max_steps == 0 or not any(origins):
        return nothing
    world = fit_world(panel, rhythm, config, ends)
    validation = Validation(panel, world, origins, horizon, config)
    rows = training_rows(panel, world, ends, config.train_members, config.stride)
    results = [_train(name, rows, validation, categories, config, report) for name in candidates(panel, config)]
    best = max(results, key=lambda trained: trained.gain)
    return best if best.gain > config.min_gain else nothing


def candidates(panel: list[Series], config: ForecastConfig) -> list[str]:
    """Networks to be tried: a context is slow to learn, and little data do not fill it."""
    if config.network != "auto":
        return [config.network]
    large = sum(series.observed.sum() for series in panel) >= config.context_min_values
    return ["mlp", "transformer"] if large else ["mlp"]


class Validation:
    """CRPS of sampled paths on held-out origins, relative to that of the bare anchor."""

    def __init__(
        self, panel: list[Series], world: World, origins: list[list[int]], horizon: int, config: ForecastConfig
    ) -> None:
        used = [(index, places) for index, places in enumerate(origins) if places]
        self.world, self.paths, self.seed = world, config.validation_paths, config.seed
        self.horizon, self.panel = horizon, panel
        self.start = join(
            [starts(panel[index], world.anchors[index], places, horizon, self.paths) for index, places in used]
        )
        ahead = [np.array(places)[:, None] + np.arange(horizon) for _, places in used]
        series = [panel[index] for index, _ in used]
        self.truth = torch.as_tensor(np.concatenate([one.y[at] for one, at in zip(series, ahead, strict=True)]))
        self.observed = torch.as_tensor(
            np.concatenate([one.observed[at] for one, at in zip(series, ahead, strict=True)])
        )
        self.series = torch.cat([torch.full((len(places),), index) for index, places in used])
        self.origins = torch.cat([torch.as_tensor(places) for _, places in used])
        self.anchor_score = self._scores(None, None)

    def _scores(self, network: ForecastNetwork | None, contexts: Tensor | None) -> Tensor:
        """Mean CRPS per origin, NaN where nothing was observed, [origins]."""
        generator = torch.Generator().manual_seed(self.seed)
        drawn = sample_paths(
            self.start, self.world.rhythm, network, self.world.kernel, self.world.bins, generator, contexts
        ).view(len(self.truth), self.paths, -1)
        return torch.where(self.observed, fair_crps(drawn, self.truth), torch.nan).nanmean(dim=-1)

    def gain(self, network: ForecastNetwork, windows: ContextWindows | None) -> tuple[float, float, float]:
        """Share of the anchor's CRPS that the network saves, mean over series; its standard error; horizons spanned.

        Origins closer than a horizon share values, so the error counts a horizon as one observation.
        """
        contexts = thoughts(network, self.panel, windows, self.series, self.origins)
        saved = self.anchor_score - self._scores(network, contexts)
        means, variances, evidence = [], [], 0.0
        for index in self.series.unique():
            mine = (self.series == index) & torch.isfinite(saved)
            scale = self.anchor_score[mine].mean().clamp_min(1e-12)
            span = float((self.origins[mine].max() - self.origins[mine].min()) / self.horizon + 1)
            evidence += span
            means.append(saved[mine].mean() / scale)
            variances.append((saved[mine] / scale).var(correction=0) / min(span, float(mine.sum())))
        mean, variance = torch.stack(means).mean(), torch.stack(variances).mean() / len(means)
        return float(mean), float(variance.sqrt()), evidence


@torch.no_grad()
def thoughts(
    network: ForecastNetwork, panel: list[Series], windows: ContextWindows | None, series: Tensor, origins: Tensor
) -> Tensor | None:
    """The network's vectors for the contexts before each origin, [rows, width]; None if it reads none."""
    inputs = windows.at(series, origins) if windows is not None else None
    return network.thought(inputs, static_codes(panel)[series])


def static_codes(panel: list[Series]) -> Tensor:
    """Categories of every series, [series, columns]."""
    return torch.as_tensor(np.stack([series.static for series in panel]))


def new_network(
    name: str, num_features: int, num_inputs: int, categories: tuple[int, ...], config: ForecastConfig
) -> ForecastNetwork:
    """A network that starts exactly at the anchor; `num_inputs` features per step of the context if it reads one."""
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
    rows: Rows,
    validation: Validation,
    categories: tuple[int, ...],
    config: ForecastConfig,
    report: Report,
) -> Trained:
    """Adam on random states; the weights with the best validation CRPS are kept, the untrained ones included."""
    panel, world, horizon = validation.panel, validation.world, validation.horizon
    windows = context_windows(panel, world, config.context_length) if name == "transformer" else None
    num_inputs = windows.features.shape[1] if windows is not None else 0
    network = new_network(name, rows.features.shape[1], num_inputs, categories, config)
    network.standardise(rows.features)
    generator = torch.Generator().manual_seed(config.seed + 1)
    optimiser = torch.optim.AdamW(network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
    averaged, codes = copy.deepcopy(network), static_codes(panel)
    # rows repeat each time once per anchor: the anchor's forecast is worth so many times, not rows
    prior = config.prior_strength * config.train_members / len(rows.time)
    best = Trained(None, name)
    # a path's context ends before its origin: all states of a horizon share it
    shared = max(horizon // config.stride, 1) if windows is not None else 1
    for step in range(1, config.max_steps + 1):
        picked, run, first = rows.draw(config.batch_size, shared, generator)
        series = rows.series[first]
        inputs = windows.at(series, rows.time[first]) if windows is not None else None
        thought = network.thought(inputs, codes[series])
        heads = network(rows.features[picked], thought[run] if thought is not None else None)
        loss = forecast_loss(heads, network, world.kernel, world.bins, rows.surprises[picked], config, generator)
        loss = loss + prior * network.departure(heads)
        if config.objective == "sgfn-db":
            # what enters at the origin is the context's whole flow: log Z(c) = log F(s_0|c)
            entering = heads.log_flow[picked == first[run]] - network.log_z(thought)
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
            report(name, step, gain)
            if gain > best.gain:
                best = Trained(copy.deepcopy(averaged), name, gain, error, evidence, step, best.history)
            elif step - best.steps >= config.patience * config.check_every:
                break
    return best
