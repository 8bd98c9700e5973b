"""Alarms: training that has stalled, diverged or collapsed. docs/doctor.md states the rules and their thresholds.

Each is a function of the course of a run alone, so what is said while a run goes on can be said again from its files.
"""

import math
from collections.abc import Callable

from stochflow.config.schema import Config
from stochflow.runs.monitor.findings import Finding
from stochflow.runs.monitor.history import NUM_FIRST, Course, Judgement

SMALL_REGRET = 0.02  # nats; below it there is nothing to complain about
WORSE_FACTOR, WORSE_NATS = 3.0, 0.1
HUGE_LOSS = 1e7
GROWN_LOSS = 1e4
FEW_STEPS = 6  # a plan of the first batches is too sure of itself, in good runs too
SETTLED = 0.25  # share of the budget after which a policy may be called bad
LATE, STRETCH = 0.4, 0.2  # when it must have left its start, and for how long it must have stood there
MOVED = 0.05  # of the regret at the start, or of the spread of intentions, that must be gone by then
FIRST = 0.05  # share of the budget that a loss is compared with
MOSTLY_ZERO = 0.5  # share of the steps
FEW_NATS = 1.5  # of entropy below the attainable optimum: under a quarter of its designs
SMALL_SPREAD = 0.05  # of the letters


def alarms(course: Course) -> list[Finding]:
    """What is wrong so far."""
    found = [rule(course) for rule in RULES]
    return [finding for finding in found if finding is not None]


def diverged(course: Course) -> Finding | None:
    """The loss has blown up, or the policy has become worse than before its training."""
    seen = _loss_blown_up(course) or _worse_than_untrained(course)
    if seen is None:
        return None
    return Finding(
        "diverged",
        "bad",
        seen,
        "training has left the place where its steps make sense",
        f"train again with a lower optimiser.learning_rate ({_lower(course.config.optimiser.learning_rate)})"
        + without_entropy_terms(course.config),
    )


def collapsed(course: Course) -> Finding | None:
    """The policy makes few of the designs that it should make."""
    if not _settled(course):
        return None
    exact = any(judged.entropy_gap is not None for judged in course.judged)
    seen = _few_designs(course) if exact else _one_design(course)
    if seen is None:
        return None
    return Finding(
        "collapsed",
        "bad",
        seen,
        "the policy has settled on few modes",
        _more_variety(course.config),
    )


def stalled(course: Course) -> Finding | None:
    """Nothing was learned in a long share of the budget."""
    if course.share < LATE or not _settled(course) or not course.num_losses:
        return None
    exact = any(judged.regret is not None for judged in course.judged)
    seen = _regret_stands(course) if exact else _score_stands(course)
    if seen is None:
        return None
    rate = course.config.optimiser.learning_rate
    return Finding(
        "stalled",
        "bad",
        seen,
        "the policy is still that of chance",
        f"raise optimiser.learning_rate ({rate:g} now; 0.005 is usual) or lower reward.beta, or try another --method "
        "(sgfn-db, ppo and mcmc need no plan of the whole tree)",
    )


def zero_scores(course: Course) -> Finding | None:
    """Most batches had nothing to learn from."""
    if course.share < SETTLED or course.num_steps < FEW_STEPS or course.zero_share < MOSTLY_ZERO:
        return None
    return Finding(
        "zero-scores",
        "bad",
        f"in {course.zero_share:.0%} of {course.num_steps} steps every design scored zero",
        *of_zeros(course.config),
    )


def of_zeros(config: Config) -> tuple[str, str]:
    """What scores of zero mean, and what to do about them."""
    return (
        f"the reward is its floor ({config.reward.floor:g}) nearly everywhere, and shows no way to more",
        "check the score function, or narrow the search to designs that score (--fixed, --forbid, --gc)",
    )


RULES: tuple[Callable[[Course], Finding | None], ...] = (diverged, collapsed, stalled, zero_scores)


def _settled(course: Course) -> bool:
    """True once enough has happened to call a policy bad, which must be one that is trained."""
    enough = course.share >= SETTLED and course.num_steps >= FEW_STEPS
    return enough and course.config.objective.record.trains_policy


def _latest(course: Course) -> list[Judgement]:
    """The last two judgements, for one may be a moment on the way; but what stands at the end of a budget stays."""
    last = course.judged[-2:]
    return last if len(last) == 2 or course.share >= 1.0 else []


def _loss_blown_up(course: Course) -> str | None:
    # where the regret is known it tells whether a policy has come back from an excursion
    since = 0.0 if course.start_regret is None else course.share - SETTLED
    largest = course.largest_loss(since)
    if largest > HUGE_LOSS:
        return f"a loss of {largest:.3g} was met"
    early, late = course.mean_loss(0.0, FIRST), course.mean_loss(course.share - FIRST, 1.0)
    if early is None or late is None:
        return None
    # some losses start near zero or below it, so growth counts only beyond a few nats
    if late > GROWN_LOSS * max(abs(early), 1.0):
        return f"the loss has grown from {early:.3g} to {late:.3g}"
    return None


def _worse_than_untrained(course: Course) -> str | None:
    start = course.start_regret
    last = [judged.regret for judged in _latest(course) if judged.regret is not None]
    if start is None or not last or not _settled(course):
        return None
    if min(last) <= WORSE_FACTOR * start + WORSE_NATS:
        return None
    return f"the regret is {last[-1]:.3g} nats, and was {start:.3g} before training"


def _few_designs(course: Course) -> str | None:
    gaps = [judged.entropy_gap for judged in _latest(course) if judged.entropy_gap is not None]
    if not gaps or min(gaps) <= FEW_NATS:
        return None
    return f"the entropy of the designs is {gaps[-1]:.2f} nats below that of the attainable optimum"


def _one_design(course: Course) -> str | None:
    """Where the target cannot be enumerated: a batch whose intentions hardly differ, but for the random ones."""
    spreads = [judged.spread for judged in _latest(course) if judged.spread is not None]
    if not spreads or max(spreads) >= SMALL_SPREAD + 2.0 * course.config.exploration.epsilon:
        return None
    return f"two intended designs of a batch differ in {spreads[-1]:.1%} of their letters"


def _regret_stands(course: Course) -> str | None:
    start = course.start_regret
    late = [judged for judged in course.judged if judged.share >= course.share - STRETCH]
    if len(late) < 2:  # judged so seldom that the last two say more than a fifth of the budget
        late = _latest(course)
    regrets = [judged.regret for judged in late if judged.regret is not None]
    if start is None or start < SMALL_REGRET or not regrets:
        return None
    if not all(abs(regret - start) < MOVED * start for regret in regrets):
        return None
    where = f"after {course.share:.0%} of the budget"
    return f"the regret is {regrets[-1]:.3g} nats {where}, and was {start:.3g} before training"


def _score_stands(course: Course) -> str | None:
    """Intentions vary as chance does, and batches score no better than the first ones, though the target would.

    Under R = s^β scores rise by about β·Var(s)/E[s] over those of chance, and Var(s) is that of a batch's mean times
    its size. A target that hardly differs from chance is no reason for an alarm.
    """
    spreads = [judged.spread for judged in course.judged if judged.spread is not None]
    mean, variance, num = course.scores(course.share / 2, 1.0)
    if num < NUM_FIRST or len(spreads) < 2 or mean <= 0.0 or min(spreads) < (1.0 - MOVED) * max(spreads):
        return None
    first = sum(course.first_scores) / NUM_FIRST
    noise = math.sqrt(variance * (1.0 / NUM_FIRST + 1.0 / num))
    expected = course.config.reward.beta * variance * course.config.optimiser.batch_size / mean
    if not math.isfinite(mean + noise) or mean - first > 3.0 * noise or expected < 6.0 * noise:
        return None
    return (
        f"batches score {mean:.4g} in the last half of {course.num_steps} steps, and the first ones scored {first:.4g}"
    )


def _lower(rate: float) -> str:
    return f"{rate:g} now; try {min(rate / 10, 5e-3):.1g}"


def without_entropy_terms(config: Config) -> str:
    """The settings that take heavy entropy terms back, to be added to a remedy; "" where there are none."""
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
