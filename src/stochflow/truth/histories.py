"""The attainable optimum where several histories may write one design.

A policy is evaluated by P(x) = Σ P(h) over the histories h that write x. For any shares p_B(h|x),
KL(P(x)‖R/Z) ≤ KL(P(h)‖R·p_B/Z), with equality where p_B is the posterior P(h|x). Both sides are convex, so solving the
tree for fixed shares and taking the posterior of its solution for the next ones falls to the optimum over all policies
(Csiszár and Tusnády 1984).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stochflow.core.codes import first_rows
from stochflow.core.logspace import safe_log
from stochflow.environments.channels import Channel
from stochflow.environments.sequences.variable_length import LengthMask, VariableTask
from stochflow.truth.prefix_tree import Attainable, kl_to_target, terminal_log_probs
from stochflow.truth.state_optimum import StateOptimum, blahut_arimoto

GAP = 1e-5
# rounds, and rounds × histories: minutes at most
_MAX_ROUNDS, _MAX_WORK = 500, 2**27
# of one round: the shares change after it, so it need not be solved to the end
ITERATIONS, TOLERANCE = 16, 1e-8
# how far to go beyond the posterior: below 2 the fixed point stays stable, and half the rounds are saved
STRIDE = 1.9


@dataclass(frozen=True)
class Histories:
    """All rows of tokens of a task, in lexicographic order, and what they write.

    Attributes:
        numbers: of the design of each history, −1 for histories that cannot come about, [K^T].
        log_shares: log p_B(h|x) to begin with, [K^T].
        allowed: True for the intentions that there are, per level, [K^t, K].
    """

    numbers: Tensor
    log_shares: Tensor
    allowed: Sequence[Tensor]

    @property
    def possible(self) -> Tensor:
        return self.numbers >= 0

    @property
    def num_designs(self) -> int:
        return int(self.numbers.max()) + 1

    @property
    def examples(self) -> Tensor:
        """The first history of each design, [num_designs]."""
        rows = self.possible.nonzero().squeeze(-1)
        return first_rows(self.numbers[rows], self.num_designs, rows)

    def collected(self, log_probs: Tensor) -> Tensor:
        """log P(x) of every design from log P(h), [K^T] → [num_designs]."""
        totals = torch.zeros(self.num_designs, dtype=torch.float64)
        return safe_log(totals.index_add_(0, self.numbers[self.possible], log_probs[self.possible].exp()))

    def spread(self, values: Tensor, elsewhere: float) -> Tensor:
        """A value per design as one per history, and another where a history cannot come about; → [K^T]."""
        return torch.where(self.possible, values[self.numbers.clamp_min(0)], elsewhere)


def attainable_designs(
    log_reward: Tensor, histories: Histories, channel: Channel, length: int, gap: float = GAP
) -> Attainable:
    """The smallest KL(P(x)‖R/Z) over all policies that keep to what is allowed, to within `gap` if time allows.

    Args:
        log_reward: log R(x) of every design, [num_designs].
    """
    channel.check_length(length)
    # what cannot come about counts nothing, and is finite all the same
    nothing = float(log_reward.min() + safe_log(torch.zeros(())))
    log_shares = histories.log_shares
    policies: list[Tensor] = []
    for _ in range(min(_MAX_ROUNDS, _MAX_WORK // len(log_shares))):
        leaves = histories.spread(log_reward, nothing) + torch.where(histories.possible, log_shares, 0.0)
        policies, log_probs = _solved(leaves, histories, channel, policies)
        collected = histories.collected(log_probs)
        min_kl = kl_to_target(collected, log_reward)
        if min_kl - lower_bound(collected, log_reward, histories, channel, length) < gap:
            break
        posterior = log_probs - histories.spread(collected, 0.0)
        stepped = log_shares + STRIDE * (posterior - log_shares)
        log_shares = stepped - histories.spread(histories.collected(stepped), 0.0)
    log_z = float(torch.logsumexp(log_reward, dim=0))
    return Attainable(log_z - min_kl, log_z, policies, collected)


def _solved(leaves: Tensor, histories: Histories, channel: Channel, start: list[Tensor]) -> tuple[list[Tensor], Tensor]:
    """π per level after some improvement on `start`, and its log P(h); [K^T] → [K^t, K] each, [K^T]."""
    levels: list[StateOptimum] = []
    values = leaves
    for position in reversed(range(len(histories.allowed))):
        levels.append(
            blahut_arimoto(
                values.reshape(-1, channel.num_tokens),
                channel.matrix(position),
                TOLERANCE,
                ITERATIONS,
                histories.allowed[position],
                start[position] if start else None,
            )
        )
        values = levels[-1].values
    levels.reverse()
    return [level.policies for level in levels], terminal_log_probs(level.log_marginals for level in levels)


def lower_bound(log_probs: Tensor, log_reward: Tensor, histories: Histories, channel: Channel, length: int) -> float:
    """What KL(P‖R/Z) cannot fall below, from any P to start with.

    The divergence is convex in P, so it lies above its tangent at P, and the least point of a tangent is a plain
    decision problem: log Z − max over policies of E[log R(x) − log P(x)].

    Args:
        log_probs: log P(x) of every design, [num_designs].
    """
    values = histories.spread(log_reward - log_probs, 0.0)
    for position in reversed(range(length)):
        action_values = values.reshape(-1, channel.num_tokens) @ channel.matrix(position).T
        values = action_values.masked_fill(~histories.allowed[position], -torch.inf).amax(dim=-1)
    return float(torch.logsumexp(log_reward, dim=0) - values)


def all_histories(task: VariableTask) -> Histories:
    """Everything that can be built, and what it writes."""
    rows, rules, mask = task.all_sequences, task.rules, LengthMask(task.rules)
    possible = rules.possible(rows)
    numbers = torch.full((len(rows),), -1)
    numbers[possible] = task.designs(rows[possible]).unique(dim=0, return_inverse=True)[1]
    # in lexicographic order a new prefix begins after every so many rows
    strides = [task.num_tokens ** (task.length - depth) for depth in range(task.length)]
    allowed = [mask.next(rows[::stride, :depth]) for depth, stride in enumerate(strides)]
    return Histories(numbers, rules.log_shares(rows), allowed)
