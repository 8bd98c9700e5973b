"""The attainable optimum under a channel with memory: the state is a prefix and what is known of the hidden state.

What a policy knows of the hidden chain is a number i: the belief that the pairs (intended, came) so far have led to, or
nothing, or the hidden state itself. P_π(x) is linear in the policy's *plan* q(x_<t, i_0 … i_t, a_0 … a_t), and

    max_π  Σ_x P_π(x)·(log R(x) − log P_π(x))

is concave in it. At a policy with g(x) = log R(x) − log P_π(x) as reward of the leaves, an ordinary backward recursion
over (prefix, i) has two uses. With max over intentions its value at the root is an upper bound of the optimum: a
concave function lies below its tangent. With log Σ_a π(a|s,i)·exp Q(s,i,a) it is the step that maximises the tangent
less KL(new‖old) over paths; the objective falls short of its tangent by KL(P_new‖P_old), which is no larger, so no
step ever goes down.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from stochflow.core.logspace import TINY_PROBABILITY
from stochflow.environments.channels import Channel
from stochflow.environments.memory_channels import MemoryChannel

GAP = 1e-5
MAX_ENTRIES = 2**24  # of Σ_t prefixes × information × intentions: half a minute on one core
_MAX_ITERATIONS = 400
_PATIENCE = 25  # iterations
_SMALLEST_STEP = 1e-3
_SAME_BELIEF = 11  # decimals


@dataclass(frozen=True)
class Information:
    """What a policy gets to know of the hidden state, and how the world answers.

    Attributes:
        start: P(i) before the first letter, [I_0].
        kernels: P(b, i'|i, a) at every position, [I_t, K, K, I_{t+1}] with outcomes before i'; after the last letter
            there is nothing to know any more, and I_L is 1.
    """

    start: Tensor
    kernels: list[Tensor]

    @property
    def num_tokens(self) -> int:
        return self.kernels[0].shape[1]

    def num_entries(self) -> int:
        """Σ_t prefixes × information × intentions."""
        num = self.num_tokens
        return sum(num**time * len(kernel) * num for time, kernel in enumerate(self.kernels))


def from_pairs(channel: Channel, length: int, most: int = MAX_ENTRIES) -> Information | None:
    """The belief that the pairs so far lead to; None where there are more different ones than `most` entries allow."""
    if not isinstance(channel, MemoryChannel):
        return nothing(channel, length)
    num, beliefs, kernels, entries = channel.num_tokens, channel.start.unsqueeze(0), [], 0
    for time in range(length):
        entries += num ** (time + 1) * len(beliefs)
        if entries > most:
            return None
        answers = channel.predictive(beliefs)  # [I, K, K]
        if time == length - 1:
            kernels.append(answers.unsqueeze(-1))
            break
        intended, came = torch.meshgrid(torch.arange(num), torch.arange(num), indexing="ij")
        rows = beliefs.repeat_interleave(num * num, dim=0)
        pairs = (intended.reshape(-1).repeat(len(beliefs)), came.reshape(-1).repeat(len(beliefs)))
        after = channel.updated(rows, *pairs)
        _, number = after.round(decimals=_SAME_BELIEF).unique(dim=0, return_inverse=True)
        size = int(number.max()) + 1
        if answers.numel() * size > most:
            return None
        kernels.append(torch.nn.functional.one_hot(number, size).view(*answers.shape, size) * answers.unsqueeze(-1))
        beliefs = torch.zeros(size, beliefs.shape[1], dtype=torch.float64).index_copy_(0, number, after)
    return Information(torch.ones(1, dtype=torch.float64), kernels)


def revealed(channel: MemoryChannel, length: int) -> Information:
    """The hidden state itself, as nobody but an oracle would know it."""
    moving = torch.einsum("zab,zy->zaby", channel.emissions, channel.moves)
    return Information(channel.start, [moving] * (length - 1) + [channel.emissions.unsqueeze(-1)])


def nothing(channel: Channel, length: int) -> Information:
    """No more than the prefix: a channel without memory, or the mean of one."""
    answers = channel.matrices.expand(length, -1, -1)
    return Information(torch.ones(1, dtype=torch.float64), [each[None, :, :, None] for each in answers])


@dataclass(frozen=True)
class InformedOptimum:
    """The best policy that was found, and what no policy with the same information can exceed.

    Attributes:
        value: Σ P·(log R − log P) of the policy; log Z less this is `min_kl`.
        upper_bound: of the value, or infinity where policies are `blind`: then the problem is not convex.
        log_z: log Σ_x R(x).
        policies: π(a|s, i) per position, [K^t, I_t, K].
        log_probs: log P(x), [K^L].
        num_iterations: steps that were taken.
    """

    value: float
    upper_bound: float
    log_z: float
    policies: list[Tensor]
    log_probs: Tensor
    num_iterations: int

    @property
    def min_kl(self) -> float:
        return max(self.log_z - self.value, 0.0)

    @property
    def gap(self) -> float:
        """By how much `min_kl` may be above the smallest one, at most."""
        return max(self.upper_bound - self.value, 0.0)


def informed_optimum(
    log_reward: Tensor,
    information: Information,
    blind: bool = False,
    gap: float = GAP,
    max_iterations: int = _MAX_ITERATIONS,
) -> InformedOptimum:
    """The smallest KL(P_π‖R/Z) of a policy with this information, to within `gap` nats.

    Args:
        log_reward: log R(x) of every sequence in lexicographic order, [K^L].
        blind: True for policies that read outcomes alone though the world has this memory. They forget what they
            intended, the problem is no longer convex, and what is found is a point that no small change improves.

    >>> from stochflow.environments.channels import uniform_slip
    >>> from stochflow.truth.prefix_tree import attainable_optimum
    >>> log_reward = torch.tensor([0.95, 0.02, 0.02, 0.01], dtype=torch.float64).log()
    >>> channel = uniform_slip(2, alpha=0.2)
    >>> found = informed_optimum(log_reward, nothing(channel, length=2))
    >>> abs(found.min_kl - attainable_optimum(log_reward, channel, length=2).min_kl) < 1e-5
    True
    """
    log_reward = log_reward.double()
    num = information.num_tokens
    policies = previous = [
        torch.full((num**time, len(kernel), num), -math.log(num), dtype=torch.float64)
        for time, kernel in enumerate(information.kernels)
    ]
    step, age, best, upper_bound, done, last = 1.0, 0, -math.inf, math.inf, 0, -math.inf
    kept, kept_probs = policies, torch.empty(0)
    milestone = -math.inf
    while upper_bound - best >= gap and done < max_iterations and step > _SMALLEST_STEP:
        if done % _PATIENCE == 0:
            # the bound is the worst state's affair, however seldom it is visited, and comes down far later
            if best - milestone < gap / 10:
                break
            milestone = best
        done += 1
        # Nesterov's momentum, which begins anew when it has led down
        ahead = _ahead(policies, previous, age / (age + 3))
        masses, probs = _forward(ahead, information)
        leaves = log_reward - probs.clamp_min(TINY_PROBABILITY).log()
        value = float(probs @ leaves)
        if value < last:
            age, step = 0, step / 2 if blind else step
        last = value
        if value > best:
            best, kept, kept_probs = value, ahead, probs
        bound, stepped = _backward(ahead, information, leaves, masses if blind else None, step)
        upper_bound = min(upper_bound, bound)
        previous, policies, age = policies, stepped, age + 1
    log_z = float(torch.logsumexp(log_reward, dim=0))
    log_probs = kept_probs.clamp_min(TINY_PROBABILITY).log()
    bound = math.inf if blind else upper_bound
    return InformedOptimum(best, bound, log_z, [each.exp() for each in kept], log_probs, done)


def _ahead(policies: list[Tensor], previous: list[Tensor], momentum: float) -> list[Tensor]:
    """Further in the direction of the last step, normalised."""
    if not momentum:
        return policies
    pairs = zip(policies, previous, strict=True)
    return [torch.log_softmax(now + momentum * (now - before), dim=-1) for now, before in pairs]


def _forward(log_policies: list[Tensor], information: Information) -> tuple[list[Tensor], Tensor]:
    """P(prefix, i) of every position, [K^t, I_t] each, and P(x), [K^L]."""
    mass, masses = information.start.unsqueeze(0), []
    for log_policy, kernel in zip(log_policies, information.kernels, strict=True):
        masses.append(mass)
        size, num = kernel.shape[:2]
        meant = (mass.unsqueeze(-1) * log_policy.exp()).reshape(len(mass), size * num)
        mass = (meant @ kernel.reshape(size * num, -1)).reshape(len(mass) * num, -1)
    return masses, mass.squeeze(-1)


def _backward(
    log_policies: list[Tensor],
    information: Information,
    leaves: Tensor,
    masses: list[Tensor] | None,
    step: float,
) -> tuple[float, list[Tensor]]:
    """An upper bound of the objective, and the policies after one step up.

    Args:
        leaves: g(x), [K^L].
        masses: P(prefix, i), for policies that may not depend on i; None for those that may.
        step: multiplies what an intention brings, of blind policies.
    """
    value = bound = leaves.unsqueeze(-1)
    updated: list[Tensor] = []
    for time in reversed(range(len(log_policies))):
        log_policy, kernel = log_policies[time], information.kernels[time]
        size, num = kernel.shape[:2]
        answers = kernel.reshape(size * num, -1).T
        shape = (len(log_policy), size, num)
        bound = (bound.reshape(len(log_policy), -1) @ answers).view(shape).amax(dim=-1)
        brings = (value.reshape(len(log_policy), -1) @ answers).view(shape)
        if masses is None:
            joint = log_policy + brings
            value = torch.logsumexp(joint, dim=-1)
            updated.append(joint - value.unsqueeze(-1))
            continue
        value = (log_policy.exp() * brings).sum(dim=-1)
        shares = masses[time] / masses[time].sum(dim=-1, keepdim=True).clamp_min(TINY_PROBABILITY)
        mean = (shares.unsqueeze(-1) * brings).sum(dim=-2, keepdim=True)
        updated.append(torch.log_softmax(log_policy + step * mean, dim=-1))
    return float(bound.squeeze(0) @ information.start), updated[::-1]
