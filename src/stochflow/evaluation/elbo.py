"""J, the evidence lower bound (ELBO) on log Z: how well a policy fits its target, from draws alone.

J(π) = E_{x~P_π}[log R(x) − log P_π(x)] = log Z − KL(P_π‖R/Z). P_π(x) of a drawn x is exact, so J is a plain mean over
draws at any size of the space, and the difference of J between two policies is the difference of their KLs.
"""

import math

from stochflow.environments.base import Environment
from stochflow.environments.rewards import Reward
from stochflow.evaluation.samples import Sampled
from stochflow.truth.truth import Truth

Estimates = dict[str, float | None]


def elbo(sampled: Sampled, environment: Environment, reward: Reward) -> Estimates:
    """J of the policy that made the draws and its standard error, as `j` and `j_se`; None unless every draw is scored.

    Where several histories write one design, the draws are histories h with log R(x) + log p_B(h|x) in the place of
    log R(x). This is log Z − KL(P_π(h)‖R·p_B/Z), which is J − E_x KL(P_π(h|x)‖p_B(h|x)): a lower bound of J.

    >>> import torch
    >>> from stochflow.environments.channels import uniform_slip
    >>> from stochflow.environments.sequences.environment import SequenceEnvironment
    >>> from stochflow.environments.sequences.tfbind8 import TFBind8
    >>> from stochflow.evaluation.samples import draw
    >>> from stochflow.models.flow_network import FlowNetwork
    >>> from stochflow.sampling.policies import NetworkPolicy
    >>> from stochflow.truth.truth import truth_of
    >>> environment = SequenceEnvironment(TFBind8("SIX6"), uniform_slip(4, alpha=0.25))
    >>> network = FlowNetwork(4, 8, kmers=(1,), width=8, num_layers=0)
    >>> network.initialise(torch.Generator().manual_seed(0))
    >>> policy, reward = NetworkPolicy(network), Reward(beta=3.0, floor=1e-6, ramp=0.0)
    >>> drawn = draw(policy, environment, 1000, torch.Generator().manual_seed(1))
    >>> found = elbo(drawn, environment, reward)
    >>> truth = truth_of(environment, reward)
    >>> exact = truth.attainable.log_z - truth.evaluate(policy)["kl"]
    >>> abs(found["j"] - exact) < 4 * found["j_se"] < 0.2
    True
    """
    if bool(sampled.scores.isnan().any()) or not len(sampled.scores):
        return {"j": None, "j_se": None}
    log_rewards = environment.log_reward(sampled.made, sampled.scores, reward).double()
    values = log_rewards + environment.log_share(sampled.made) - sampled.log_probs.double()
    num = len(values)
    return {"j": float(values.mean()), "j_se": float(values.std()) / math.sqrt(num) if num > 1 else None}


def estimates(
    sampled: Sampled, environment: Environment, reward: Reward, truth: Truth | None, unlisted: bool = False
) -> Estimates:
    """J, with the KL and the regret that follow from it where log Z and the smallest KL are known and P_π is not.

    Args:
        unlisted: True where P_π of all objects is not computed though there is a table of them.
    """
    found = elbo(sampled, environment, reward)
    if truth is None or (truth.exact_evaluation and not unlisted) or found["j"] is None:
        return found
    return found | truth.estimated(found["j"], found["j_se"])
