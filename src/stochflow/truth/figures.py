"""What can be said of an environment exactly before anything is trained: the figures of `stochflow exact`."""

from typing import Any

from torch import log_softmax

from stochflow.core.errors import ConfigError
from stochflow.environments.base import Environment
from stochflow.environments.channels import Channel
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.constraints import ConstrainedTask
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.environments.sequences.multi_task import MultiTaskEnvironment
from stochflow.truth.orders import best_orders, orders_kl
from stochflow.truth.prefix_tree import tv_to_target
from stochflow.truth.truth import SequenceTruth, truth_of

_OPTIMUM = ("min_kl", "min_tv", "attainable_score", "log_z_true")
_MOST_UNCERTAIN = 0.01  # nats of log Z


def exact_figures(environment: Environment, reward: Reward, feedback: str = "step") -> dict[str, Any]:
    """The optimum of an environment, or bounds of log Z where nothing else is known; None for what is not.

    Args:
        feedback: "step" for policies that see every outcome before their next intention, "none" for orders of whole
            strings.

    >>> from stochflow.environments.channels import noiseless
    >>> from stochflow.environments.sequences.bits import BitSequences
    >>> found = exact_figures(SequenceEnvironment(BitSequences(), noiseless(256)), Reward(240.0, 1e-6, 0.0))
    >>> round(found["log_z_true"], 4), found["log_z_error"] < 1e-6, found["min_kl"]
    (259.3257, True, None)
    """
    result: dict[str, Any] = {**environment.describe(), "beta": reward.beta, "floor": reward.floor}
    if feedback == "none":
        return result | {"feedback": feedback} | _of_orders(environment, reward)
    truth = truth_of(environment, reward)
    if truth is None:
        return result | dict.fromkeys(_OPTIMUM) | _log_z(environment, reward)
    result |= dict.fromkeys(_OPTIMUM) | truth.optimum()
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


def _of_orders(environment: Environment, reward: Reward) -> dict[str, float]:
    """The optimum of orders of whole strings, its certificate, and what feedback would add."""
    truth = _without_feedback(environment, reward)
    log_reward, channel, length = truth.log_rewards, truth.environment.channel, truth.environment.max_steps
    best, with_feedback = best_orders(log_reward, channel, length), truth.attainable
    return {
        "min_kl": best.kl,
        "min_tv": tv_to_target(best.log_probs, log_reward),
        "attainable_score": float(best.log_probs.exp() @ truth.scores),
        "log_z_true": with_feedback.log_z,
        "min_kl_lower_bound": best.lower_bound,
        "min_kl_gap": best.gap,
        "num_orders": best.num_orders,
        "kl_ignoring_noise": max(orders_kl(log_softmax(log_reward, dim=0), log_reward, channel, length), 0.0),
        "min_kl_with_feedback": with_feedback.min_kl,
        # whoever orders is a policy that does not look: only rounding could bring this below zero
        "value_of_feedback": max(best.kl - with_feedback.min_kl, 0.0),
    }


def _without_feedback(environment: Environment, reward: Reward) -> SequenceTruth:
    """The truth of an environment where whole strings can be ordered; a ConfigError elsewhere."""
    remedy = "leave out --feedback none"
    if not isinstance(environment, SequenceEnvironment) or isinstance(environment, MultiTaskEnvironment):
        raise ConfigError(f"only strings of a sequence task can be ordered, and '{environment.name}' is none; {remedy}")
    if environment.rules is not None:
        raise ConfigError(f"orders without feedback are strings of one length; fix the length, or {remedy}")
    if isinstance(environment.task, ConstrainedTask):
        raise ConfigError(
            "constraints are kept by looking at each outcome, which orders cannot; leave the constraints out, or "
            f"{remedy}"
        )
    if type(environment.channel) is not Channel:
        raise ConfigError(
            f"the channel '{environment.channel_name}' is no matrix per position, so it cannot act on whole strings; "
            f"choose another --noise, or {remedy}"
        )
    if not environment.enumerable:
        raise ConfigError(
            f"task '{environment.name}' is too large to enumerate its orders; choose a smaller task, or {remedy}"
        )
    return SequenceTruth(environment, reward)
