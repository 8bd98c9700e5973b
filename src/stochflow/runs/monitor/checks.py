"""Checks of a run from its files, beside the alarms; docs/how-to/doctor.md has the rules and their thresholds."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from stochflow.config.schema import Config
from stochflow.evaluation.summary import Summary
from stochflow.runs.monitor.advice import better_sampler, long_case, or_better
from stochflow.runs.monitor.alarms import SMALL_REGRET, of_zeros, stalled, without_entropy_terms
from stochflow.runs.monitor.findings import Finding
from stochflow.runs.monitor.history import Estimate, History, PolicyEvaluation

INFEASIBLE_TV, INFEASIBLE_KL = 0.2, 0.1
DYNAMICS_NATS = 0.1
LOG_Z_NATS = 1.0
MOSTLY_ZERO_DESIGNS = 0.9
STILL_FALLING = 0.1  # of the regret, lost in the last fifth of the budget
FAR = 0.25  # of the regret at the start
RULED_OUT = 0.3  # nats of imitation loss at the end
SETTLED_KL = 0.1  # relative change of the KL loss over the last two tenths that still counts as none
_LAST = 0.2


@dataclass(frozen=True)
class Case:
    """Data of one run that the checks read.

    Attributes:
        summary: None for a run that has not ended.
        zero_share: share of the drawn designs that score zero; None where nothing was drawn or scored.
    """

    config: Config
    summary: Summary | None
    history: History
    zero_share: float | None = None


def _unfinished(case: Case) -> Finding | None:
    if case.summary is not None and case.summary.status == "finished":
        return None
    costs = "; what the oracle was paid for is kept" if case.config.task.startswith("oracle:") else ""
    how = "was killed, failed or goes on" if case.summary is None else "was interrupted"
    return Finding(
        "unfinished",
        "bad",
        f"training stands at {case.history.share:.0%} of its budget after {case.history.num_steps} steps",
        f"the run {how}, and the learning rate has not come down to zero{costs}",
        "finish it with `stochflow train --resume --out RUN`",
    )


def _worse(case: Case) -> Finding | None:
    seen = _regret_above_start(case) or _j_below_start(case)
    if seen is None:
        return None
    return Finding(
        "worse",
        "bad",
        seen,
        "designs that the target rarely wants are made too often, or many that it wants hardly ever",
        f"{_longer(case)}{without_entropy_terms(case.config)}" + or_better(case.history),
    )


def _regret_above_start(case: Case) -> str | None:
    start, regret = _regrets(case)
    noise = _regret_noise(case, case.history.start_j)
    if start is None or regret is None or regret < 1.05 * start + SMALL_REGRET + noise:
        return None
    return f"the regret is {regret:.3g} nats, and was {start:.3g} before training"


def _j_below_start(case: Case) -> str | None:
    start, j = _js(case)
    if start is None or j is None or start.mean - j.mean < SMALL_REGRET + j.noise(start):
        return None
    return f"J is {j.mean:.4g} nats, and was {start.mean:.4g} before training"


def _budget(case: Case) -> Finding | None:
    # the newest evaluation that is a fifth to two fifths older than the end: any regret falls over a longer time
    longest, shortest = case.history.share - 2.0 * _LAST, case.history.share - _LAST
    past = [point for point in case.history.evaluations if longest <= point.share <= shortest]
    if not past or case.history.share < 1.0:
        return None
    seen = _regret_still_falls(case, past[-1]) or _j_still_rises(case, past[-1])
    if seen is None:
        return None
    return Finding(
        "budget",
        "note",
        f"{seen} nats in the last {case.history.share - past[-1].share:.0%} of the budget",
        "it was still getting better when the budget ended",
        _longer(case),
    )


def _regret_still_falls(case: Case, past: PolicyEvaluation) -> str | None:
    _, regret = _regrets(case)
    if regret is None or past.regret is None or regret < SMALL_REGRET:
        return None
    if past.regret - regret < STILL_FALLING * regret + _regret_noise(case, past.j):
        return None
    return f"the regret fell from {past.regret:.3g} to {regret:.3g}"


def _j_still_rises(case: Case, past: PolicyEvaluation) -> str | None:
    start, j = _js(case)
    if start is None or j is None or past.j is None:
        return None
    if j.mean - past.j.mean < max(STILL_FALLING * (j.mean - start.mean), j.noise(past.j), SMALL_REGRET):
        return None
    return f"J rose from {past.j.mean:.4g} to {j.mean:.4g}"


def _falling(case: Case) -> Finding | None:
    """J is lower at the end than it was earlier, by more than noise and a tenth of what had been gained."""
    start, j = _js(case)
    before = [(point.j, point.share) for point in case.history.evaluations if point.j is not None]
    if start is None or j is None or not before:
        return None
    best, share = max(before)
    if best.mean - j.mean < max(STILL_FALLING * (best.mean - start.mean), j.noise(best), SMALL_REGRET):
        return None
    return Finding(
        "falling",
        "note",
        f"J was {best.mean:.4g} nats after {share:.0%} of the budget and is {j.mean:.4g} now",
        "the policy has moved away from the target again, towards fewer designs or worse ones",
        f"lower optimiser.learning_rate ({case.config.optimiser.learning_rate:g} now) or raise exploration.epsilon",
    )


def _far(case: Case) -> Finding | None:
    start, regret = _regrets(case)
    if (
        start is None
        or regret is None
        or regret < SMALL_REGRET
        or not FAR * start < regret < 1.05 * start + SMALL_REGRET
    ):
        return None
    better = better_sampler(case.history)
    blind = case.config.objective.path == "realised" and case.summary is not None and case.summary.noise != 0.0
    return Finding(
        "far",
        "note",
        f"the regret is {regret:.3g} nats of {start:.3g} before training",
        f"the policy has come {max(1.0 - regret / start, 0.0):.0%} of the way to the best that this noise allows"
        + (", and a method that is blind to noise cannot come closer by training longer" if blind else ""),
        _longer(case) if better is None else f"use --method {better}",
    )


def _ruled_out(case: Case) -> Finding | None:
    before, after = case.history.mean_imitation(0.8, 0.9), case.history.mean_imitation(0.9, 1.0)
    if before is None or after is None or min(before[0], after[0]) < RULED_OUT or stalled(case.history) is not None:
        return None
    if abs(after[1] - before[1]) > SETTLED_KL * max(abs(before[1]), abs(after[1])):
        return None
    weight = case.config.objective.imitation_weight
    return Finding(
        "ruled-out",
        "bad",
        f"KL from the plan's policy to the network's is {after[0]:.3g} nats, and the KL loss stands at {after[1]:.3g}",
        "the policy has ruled out intentions that the plan wants, and the divergence alone does not bring them back",
        f"train again with a larger objective.imitation_weight ({weight:g} now; try {max(10 * weight, 0.1):g})",
    )


def _infeasible(case: Case) -> Finding | None:
    summary = case.summary
    if summary is None or summary.min_kl is None:
        return None
    if summary.min_kl < INFEASIBLE_KL and (summary.min_tv is None or summary.min_tv < INFEASIBLE_TV):
        return None
    tv = "" if summary.min_tv is None else f" and TV {summary.min_tv:.3g}"
    return Finding(
        "infeasible",
        "note",
        f"the best of all policies has KL {summary.min_kl:.3g}{tv} to the target",
        "under this noise the target cannot be reached, whatever is trained: judge the run by its regret",
        f"lower the noise, or ask for a flatter target (reward.beta={summary.beta / 2:g})",
    )


def _dynamics(case: Case) -> Finding | None:
    summary = case.summary
    if summary is None or summary.dynamics_ce is None or not case.config.objective.record.trains_policy:
        return None
    gap = summary.dynamics_ce - summary.dynamics_ce_floor
    if gap < DYNAMICS_NATS:
        return None
    return Finding(
        "dynamics",
        "bad",
        f"the cross-entropy of P̂ is {summary.dynamics_ce:.3g}, its floor {summary.dynamics_ce_floor:.3g} nats",
        "the method plans for a channel that is not the true one",
        f"learn P̂ faster (dynamics.learning_rate={5 * case.config.dynamics.learning_rate:g}) or from more steps "
        f"(dynamics.rounds={4 * case.config.dynamics.rounds}), or give the true one (dynamics.kind=known)",
    )


def _zeros(case: Case) -> Finding | None:
    if case.zero_share is None or case.zero_share < MOSTLY_ZERO_DESIGNS:
        return None
    seen = f"{case.zero_share:.0%} of the drawn designs score zero"
    return Finding("zero-scores", "bad", seen, *of_zeros(case.config))


def _log_z(case: Case) -> Finding | None:
    """For the methods whose estimate has a known aim; see docs/reference/metrics.md."""
    summary, aimed_at = case.summary, case.config.objective.record.log_z
    if summary is None or summary.log_z_true is None or summary.kl is None or summary.min_kl is None:
        return None
    if aimed_at is None:
        return None
    aim = summary.log_z_true - {"target": 0.0, "policy": summary.kl, "optimum": summary.min_kl}[aimed_at]
    noise = 3.0 * (summary.regret_se or 0.0) if aimed_at == "policy" else 0.0
    if abs(summary.log_z - aim) < LOG_Z_NATS + noise:
        return None
    return Finding(
        "log-z",
        "bad",
        f"log Z is estimated at {summary.log_z:.3g} and should be {aim:.3g}",
        "the flows do not add up to the rewards, so balance holds somewhere else than at the target",
        _longer(case) + or_better(case.history),
    )


def _oracle(case: Case) -> Finding | None:
    summary, calls = case.summary, case.config.budget.oracle_calls
    if summary is None or summary.status != "finished":
        return None
    if calls is not None and summary.oracle_calls < calls:
        return Finding(
            "oracle",
            "bad",
            f"{summary.oracle_calls} of {calls} oracle calls were used",
            "the sampler brought nothing new for a hundred steps",
            "raise exploration.epsilon or plan.bonus, or lower reward.beta",
        )
    if summary.scored_fraction < 0.5:
        return Finding(
            "oracle",
            "note",
            f"{1.0 - summary.scored_fraction:.0%} of the drawn designs were never paid for",
            "scores and modes are those of the rest",
            "pay for them with `stochflow evaluate RUN --score-samples`",
        )
    return None


def _memory(case: Case) -> Finding | None:
    optimiser = case.config.optimiser
    if optimiser.replay_size < optimiser.batch_size:
        return Finding(
            "replay",
            "note",
            f"replay keeps {optimiser.replay_size} trajectories of batches of {optimiser.batch_size}",
            "most of what was seen is forgotten before it is used again",
            f"keep more: optimiser.replay_size={20 * optimiser.batch_size}",
        )
    return None


def _method(case: Case) -> Finding | None:
    """Methods that did better where this task was measured, by the two things that one may want of a run."""
    measured = long_case(case.config)
    if measured is None:
        return None
    aims = {"draws in proportion to the reward": measured.highest_j, "only the best designs": measured.best_designs}
    others = [(aim, method) for aim, method in aims.items() if method not in (None, case.config.method)]
    if not others:
        return None
    return Finding(
        "method",
        "note",
        f"methods were compared on {measured.task} at noise {measured.noise:g} with {measured.calls} calls",
        "for what you want of the run another method may have been better, or as good in less time",
        "; ".join(f"for {aim} use --method {method}" for aim, method in others),
    )


def _regrets(case: Case) -> tuple[float | None, float | None]:
    """Before training and now; unknown where the policy is a list of designs, or is not trained."""
    if not case.config.objective.record.trains_policy:
        return None, None
    known = [point.regret for point in case.history.evaluations if point.regret is not None]
    latest = known[-1] if known else None
    return case.history.start_regret, latest if case.summary is None else case.summary.regret


def _js(case: Case) -> tuple[Estimate | None, Estimate | None]:
    """J before training and now; unknown where there is a regret, which says more, or no policy is trained."""
    if not case.config.objective.record.trains_policy or _regrets(case)[1] is not None:
        return None, None
    if case.summary is None:
        known = [point.j for point in case.history.evaluations if point.j is not None]
        return case.history.start_j, known[-1] if known else None
    j, error = case.summary.j, case.summary.j_se
    return case.history.start_j, None if j is None or error is None else Estimate(j, error)


def _regret_noise(case: Case, before: Estimate | None) -> float:
    """Three standard errors of the difference to an earlier regret; zero where both are exact.

    Args:
        before: J at that time, which the regret was estimated from.
    """
    now = (None if case.summary is None else case.summary.regret_se) or 0.0
    return 3.0 * math.hypot(now, 0.0 if before is None else before.error)


def _longer(case: Case) -> str:
    if case.config.objective.record.pretrains:
        return f"pre-train longer (--steps {4 * case.history.num_steps})"
    done = case.summary.trajectories if case.summary is not None else case.config.budget.trajectories or 32_000
    return f"train longer (--trajectories {4 * done})"


Rule = Callable[[Case], Finding | None]
# consequences of an alarm, left out while one holds
OVERSHADOWED: tuple[Rule, ...] = (_worse, _log_z, _far, _budget, _falling)
RULES: tuple[Rule, ...] = (
    _unfinished,
    _ruled_out,
    _worse,
    _dynamics,
    _zeros,
    _log_z,
    _oracle,
    _far,
    _budget,
    _falling,
    _infeasible,
    _memory,
    _method,
)
