"""Alarms: rules that detect training which has stalled, diverged or collapsed (thresholds: docs/how-to/doctor.md).

Every rule is a function of the run's history alone, so the doctor can replay from files what was said during training.
"""

import math
from collections.abc import Callable

from stochflow.config.schema import Config
from stochflow.runs.monitor.advice import or_better
from stochflow.runs.monitor.findings import Finding
from stochflow.runs.monitor.history import NUM_FIRST, Estimate, History, PolicyEvaluation

SMALL_REGRET = 0.02  # nats; a regret below it raises no alarm
WORSE_FACTOR, WORSE_NATS = 3.0, 0.1
HUGE_LOSS = 1e7
GROWN_LOSS = 1e4
FEW_STEPS = 6  # plans of the first batches are overconfident in good runs too
SETTLED = 0.25  # share of the budget before which the policy is not evaluated by alarms
LATE, STALL_SHARE = 0.4, 0.2  # share of the budget after which a run can be stalled, and the share without progress
TREND = 2.0  # standard errors of the slope of J over the course of a run
MOVED = 0.05  # relative change of the regret or of the spread of intentions that counts as progress
FIRST = 0.05  # share of the budget over which early and late losses are averaged
MOSTLY_ZERO = 0.5  # share of the steps
FEW_NATS = 1.5  # of entropy below the attainable optimum: under a quarter of its designs
SMALL_SPREAD = 0.05  # of the letters


def alarms(history: History) -> list[Finding]:
    """Findings of all rules that apply now."""
    found = [rule(history) for rule in RULES]
    return [finding for finding in found if finding is not None]


def diverged(history: History) -> Finding | None:
    """Divergence: the loss has exploded, or the regret is far above that of the untrained policy."""
    seen = _loss_blown_up(history) or _worse_than_untrained(history)
    if seen is None:
        return None
    return Finding(
        "diverged",
        "bad",
        seen,
        "training has left the place where its steps make sense",
        f"train again with a lower optimiser.learning_rate ({_lower(history.config.optimiser.learning_rate)})"
        + without_entropy_terms(history.config),
    )


def collapsed(history: History) -> Finding | None:
    """Mode collapse: the entropy of the designs is far below that of the attainable optimum."""
    if not _settled(history):
        return None
    exact = any(point.entropy_gap is not None for point in history.evaluations)
    seen = _few_designs(history) if exact else _one_design(history)
    if seen is None:
        return None
    return Finding(
        "collapsed",
        "bad",
        seen,
        "the policy has settled on few modes",
        _more_variety(history.config),
    )


def stalled(history: History) -> Finding | None:
    """No progress: neither regret nor J nor scores have improved over a long share of the budget."""
    if history.share < LATE or not _settled(history) or not history.num_losses:
        return None
    if any(point.regret is not None for point in history.evaluations):
        seen = _regret_stands(history)
    else:
        seen = _score_stands(history) if history.start_j is None else _no_better(history, history.start_j)
    if seen is None:
        return None
    rate = history.config.optimiser.learning_rate
    return Finding(
        "stalled",
        "bad",
        seen,
        "the policy is still that of chance",
        f"raise optimiser.learning_rate ({rate:g} now; 0.005 is usual) or lower reward.beta" + or_better(history),
    )


def zero_scores(history: History) -> Finding | None:
    """No signal: in most batches every design scores zero."""
    if history.share < SETTLED or history.num_steps < FEW_STEPS or history.zero_share < MOSTLY_ZERO:
        return None
    return Finding(
        "zero-scores",
        "bad",
        f"in {history.zero_share:.0%} of {history.num_steps} steps every design scored zero",
        *of_zeros(history.config),
    )


def of_zeros(config: Config) -> tuple[str, str]:
    """Meaning and remedy of scores of zero, for a `Finding`."""
    return (
        f"the reward is its floor ({config.reward.floor:g}) nearly everywhere, and shows no way to more",
        "check the score function, or narrow the search to designs that score (--fixed, --forbid, --gc)",
    )


RULES: tuple[Callable[[History], Finding | None], ...] = (diverged, collapsed, stalled, zero_scores)


def _settled(history: History) -> bool:
    """True once enough has happened to call a policy bad, which must be one that is trained."""
    enough = history.share >= SETTLED and history.num_steps >= FEW_STEPS
    return enough and history.config.objective.record.trains_policy


def _latest(history: History) -> list[PolicyEvaluation]:
    """The last two evaluations, since a single one may be transient; one is enough at the end of the budget."""
    last = history.evaluations[-2:]
    return last if len(last) == 2 or history.share >= 1.0 else []


def _loss_blown_up(history: History) -> str | None:
    # where the regret is known it shows whether training has recovered, so only recent losses count
    since = 0.0 if history.start_regret is None else history.share - SETTLED
    largest = history.largest_loss(since)
    if largest > HUGE_LOSS:
        return f"a loss of {largest:.3g} was met"
    early, late = history.mean_loss(0.0, FIRST), history.mean_loss(history.share - FIRST, 1.0)
    if early is None or late is None:
        return None
    # some losses start near zero or below it, so growth counts only beyond a few nats
    if late > GROWN_LOSS * max(abs(early), 1.0):
        return f"the loss has grown from {early:.3g} to {late:.3g}"
    return None


def _worse_than_untrained(history: History) -> str | None:
    start = history.start_regret
    last = [(point.regret, _noise(history, point)) for point in _latest(history) if point.regret is not None]
    if start is None or not last or not _settled(history):
        return None
    if any(regret <= WORSE_FACTOR * (start + noise) + WORSE_NATS for regret, noise in last):
        return None
    return f"the regret is {last[-1][0]:.3g} nats, and was {start:.3g} before training"


def _noise(history: History, point: PolicyEvaluation) -> float:
    """Three standard errors of the difference to the regret before training; zero where regrets are exact."""
    return 0.0 if history.start_j is None or point.j is None else point.j.noise(history.start_j)


def _few_designs(history: History) -> str | None:
    gaps = [point.entropy_gap for point in _latest(history) if point.entropy_gap is not None]
    if not gaps or min(gaps) <= FEW_NATS:
        return None
    return f"the entropy of the designs is {gaps[-1]:.2f} nats below that of the attainable optimum"


def _one_design(history: History) -> str | None:
    """Collapse where the target cannot be enumerated: the intentions of a batch hardly differ, ε-exploration aside."""
    spreads = [point.spread for point in _latest(history) if point.spread is not None]
    if not spreads or max(spreads) >= SMALL_SPREAD + 2.0 * history.config.exploration.epsilon:
        return None
    return f"two intended designs of a batch differ in {spreads[-1]:.1%} of their letters"


def _regret_stands(history: History) -> str | None:
    start = history.start_regret
    regrets = [point.regret for point in _late(history) if point.regret is not None]
    if start is None or start < SMALL_REGRET or not regrets:
        return None
    if not all(abs(regret - start) < MOVED * start for regret in regrets):
        return None
    where = f"after {history.share:.0%} of the budget"
    return f"the regret is {regrets[-1]:.3g} nats {where}, and was {start:.3g} before training"


def _late(history: History) -> list[PolicyEvaluation]:
    """Evaluations in the last fifth of the budget; where they are rarer the last two, though they span more."""
    late = [point for point in history.evaluations if point.share >= history.share - STALL_SHARE]
    return late if len(late) > 1 else _latest(history)


def _no_better(history: History, start: Estimate) -> str | None:
    """Stall where the target cannot be enumerated but designs have scores: J has not risen, and it or scores stand.

    J has risen if a late evaluation is above its start by three standard errors, or all together show a trend: one of
    a hundred draws of a wide log R is too noisy to tell slow training from none.
    """
    late = [point.j for point in _late(history) if point.j is not None]
    if any(j.mean - start.mean >= j.noise(start) for j in late) or _trend(history, start) >= TREND:
        return None
    return _j_stands(history, start, late) or _score_stands(history)


def _trend(history: History, start: Estimate) -> float:
    """By how many standard errors the slope of J over the whole course exceeds zero.

    Weighted least squares: many noisy evaluations show a slow rise that no two of them do. Zero with fewer than three.
    """
    points = [(0.0, start), *((point.share, point.j) for point in history.evaluations if point.j is not None)]
    if len(points) < 3 or any(j.error <= 0.0 for _, j in points):
        return 0.0
    weights = [1.0 / j.error / j.error for _, j in points]
    total = math.fsum(weights)
    centre = math.fsum(weight * share for weight, (share, _) in zip(weights, points, strict=True)) / total
    steps = [weight * (share - centre) for weight, (share, _) in zip(weights, points, strict=True)]
    spread = math.fsum(step * (share - centre) for step, (share, _) in zip(steps, points, strict=True))
    rise = math.fsum(step * (j.mean - start.mean) for step, (_, j) in zip(steps, points, strict=True))
    return rise / math.sqrt(spread) if 0.0 < spread < math.inf else 0.0


def _j_stands(history: History, start: Estimate, late: list[Estimate]) -> str | None:
    """J is still that of the untrained policy, although there is something to be gained.

    Training can gain about Var(log R)/2, the KL of uniform designs to the target, and Var(log R)/n is the squared
    standard error of J before training. No alarm is raised where this gain is within the noise.
    """
    gain = history.config.evaluation.curve_samples * start.error**2 / 2.0
    if not late or not all(abs(j.mean - start.mean) < j.noise(start) < gain / 2.0 for j in late):
        return None
    where = f"after {history.share:.0%} of the budget"
    return f"J is {late[-1].mean:.4g} nats {where}, and was {start.mean:.4g} before training"


def _score_stands(history: History) -> str | None:
    """Stall where the target cannot be enumerated: neither intentions nor batch scores have changed.

    Under R = s^β the mean score of the target is about β·Var(s)/E[s] above that of the untrained policy, and Var(s) is
    the variance of a batch mean times the batch size. No alarm is raised where this gain is within the noise.
    """
    spreads = [point.spread for point in history.evaluations if point.spread is not None]
    mean, variance, num = history.scores(history.share / 2, 1.0)
    if num < NUM_FIRST or len(spreads) < 2 or mean <= 0.0 or min(spreads) < (1.0 - MOVED) * max(spreads):
        return None
    first = sum(history.first_scores) / NUM_FIRST
    noise = math.sqrt(variance * (1.0 / NUM_FIRST + 1.0 / num))
    expected = history.config.reward.beta * variance * history.config.optimiser.batch_size / mean
    if not math.isfinite(mean + noise) or mean - first > 3.0 * noise or expected < 6.0 * noise:
        return None
    return (
        f"batches score {mean:.4g} in the last half of {history.num_steps} steps, and the first ones scored {first:.4g}"
    )


def _lower(rate: float) -> str:
    return f"{rate:g} now; try {min(rate / 10, 5e-3):.1g}"


def without_entropy_terms(config: Config) -> str:
    """Settings that reduce large entropy weights, to be appended to a remedy; "" where the weights are small."""
    heavy = [name for name in ("lambda_ratio", "lambda_dynamics") if getattr(config.objective, name) > 0.03]
    return "".join(f" and objective.{name}=0.003" for name in heavy)


def _more_variety(config: Config) -> str:
    heavy = without_entropy_terms(config)
    if heavy:
        return "train again with" + heavy.removeprefix(" and")
    if config.objective.record.has_temperature:
        return f"train again with a higher rl.temperature ({config.rl.temperature:g} now)"
    return (
        f"train again with a lower optimiser.learning_rate ({_lower(config.optimiser.learning_rate)}), a lower "
        f"reward.beta ({config.reward.beta:g} now) or more exploration (exploration.epsilon=0.1)"
    )
