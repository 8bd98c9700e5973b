"""What can be said of an environment exactly before anything is trained: the figures of `stochflow exact`."""

from typing import Any

from torch import log_softmax

from stochflow.core.errors import ConfigError
from stochflow.environments.base import Environment
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.truth.orders import orders_kl
from stochflow.truth.truth import MemoryTruth, OrdersTruth, SequenceTruth, truth_of

_OPTIMUM = ("min_kl", "min_tv", "attainable_score", "log_z_true")
_MOST_UNCERTAIN = 0.01  # nats of log Z


def exact_figures(environment: Environment, reward: Reward) -> dict[str, Any]:
    """The optimum of an environment, or bounds of log Z where nothing else is known; None for what is not.

    >>> from stochflow.environments.channels import noiseless
    >>> from stochflow.environments.sequences.bits import BitSequences
    >>> found = exact_figures(SequenceEnvironment(BitSequences(), noiseless(256)), Reward(240.0, 1e-6, 0.0))
    >>> round(found["log_z_true"], 4), found["log_z_error"] < 1e-6, found["min_kl"]
    (259.3257, True, None)
    """
    result: dict[str, Any] = {**environment.describe(), "beta": reward.beta, "floor": reward.floor}
    truth = truth_of(environment, reward)
    if result.get("feedback") == "none" and isinstance(truth, SequenceTruth) and truth.histories is None:
        truth = OrdersTruth(truth.environment, reward)  # without noise too: what is asked for is answered
    if truth is None and environment.ordered:
        raise ConfigError(
            f"task '{environment.name}' is too large to enumerate its orders; choose a smaller task, or add --feedback "
            "step"
        )
    if truth is None:
        return result | dict.fromkeys(_OPTIMUM) | _log_z(environment, reward)
    result |= dict.fromkeys(_OPTIMUM) | truth.optimum()
    if isinstance(truth, OrdersTruth):
        return result | _of_orders(truth)
    if isinstance(truth, MemoryTruth):
        return result | _of_memory(truth)
    shares = truth.infeasible_share()
    return result if shares is None else result | {"infeasible_share": shares}


def _log_z(environment: Environment, reward: Reward) -> dict[str, float]:
    """log Z, and by how much it may be too large; a ConfigError where that is too much."""
    bounds = environment.task.log_z_bounds(reward) if isinstance(environment, SequenceEnvironment) else None
    if bounds is None or not bounds[1] - bounds[0] <= _MOST_UNCERTAIN:
        raise ConfigError(
            f"task '{environment.name}' is too large to enumerate, so its optimum cannot be computed; train it instead"
        )
    return {"log_z_true": bounds[1], "log_z_error": bounds[1] - bounds[0]}


def _of_memory(truth: MemoryTruth) -> dict[str, float]:
    """What is known of a channel with memory beside the optimum of policies that read the pairs so far."""
    return {
        "min_kl_gap": truth.attainable.gap,
        "min_kl_without_history": truth.without_history.min_kl,
        "min_kl_revealed": truth.revealed.min_kl,
    }


def _of_orders(truth: OrdersTruth) -> dict[str, float]:
    """What is known of orders of whole strings beside their optimum: its certificate, and what feedback would add."""
    environment, log_reward, best = truth.environment, truth.log_rewards, truth.attainable.orders
    ignoring = orders_kl(log_softmax(log_reward, dim=0), log_reward, environment.channel, environment.max_steps)
    return {
        "min_kl_lower_bound": best.lower_bound,
        "min_kl_gap": best.gap,
        "num_orders": best.num_orders,
        "kl_ignoring_noise": max(ignoring, 0.0),
        "min_kl_with_feedback": truth.with_feedback.attainable.min_kl,
    }
