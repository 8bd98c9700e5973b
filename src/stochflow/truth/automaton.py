"""Truth at any length, of tasks whose score a finite automaton computes.

The reward of everything that can follow a prefix depends on its state q alone, so the backward recursion of the prefix
tree runs over pairs (t, q): time L·|Q|·K in place of K^L.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, NoReturn

import torch
from torch import Tensor

from stochflow.core.logspace import safe_log
from stochflow.environments.channels import Channel
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.score_automaton import ScoreAutomaton
from stochflow.truth.state_optimum import state_optimum


@dataclass(frozen=True)
class AutomatonReward:
    """log R along an automaton: terminal[q_L] + Σ_t steps[q_t, x_t].

    Attributes:
        automaton: of the score.
        terminal: log R of the last state, [Q].
        steps: what each letter adds to log R, [Q, K]; None where it adds nothing.
    """

    automaton: ScoreAutomaton
    terminal: Tensor
    steps: Tensor | None = None


def automaton_reward(automaton: ScoreAutomaton, reward: Reward, length: int) -> AutomatonReward | None:
    """The reward as a sum along the automaton; None where the floor would cut the sum of some sequence."""
    terminal, beta = reward.log_reward(automaton.scores), reward.exponent()
    if automaton.log_factors is None:
        return AutomatonReward(automaton, terminal)
    lowest = reward.log_reward(torch.zeros(1, dtype=torch.float64))
    if beta * automaton.lowest(length) < float(lowest):
        return None
    return AutomatonReward(automaton, beta * automaton.scores.log(), beta * automaton.log_factors)


class Drawn(NamedTuple):
    """Sequences of a policy with their exact probabilities.

    Attributes:
        intentions, outcomes: what was meant and what came, [num, L].
        log_probs: log P(x), [num].
    """

    intentions: Tensor
    outcomes: Tensor
    log_probs: Tensor


@dataclass(frozen=True)
class AutomatonOptimum:
    """The smallest KL(P_π‖R/Z) that any policy can reach under a channel, and the policy that reaches it.

    Attributes:
        value: V(root) = J of this policy, E[log R − log P]; log Z − V(root) is `min_kl`.
        log_z: log Σ_x R(x).
        states: that can be reached, ascending, per position, [num_t]; after the last letter too.
        policies: π(a|t, q) of these states, per position, [num_t, K].
    """

    automaton: ScoreAutomaton
    channel: Channel
    value: float
    log_z: float
    states: list[Tensor]
    policies: list[Tensor]

    @property
    def min_kl(self) -> float:
        """Never negative: without noise the true value is zero and only rounding remains."""
        return max(self.log_z - self.value, 0.0)

    @property
    def log_probs(self) -> Tensor:
        """Not available: there are too many sequences to list them."""
        refuse_list()

    def policy(self, position: int, states: Tensor) -> Tensor:
        """π(·|t, q) of states that can be reached; [num] → [num, K]."""
        return self.policies[position][torch.searchsorted(self.states[position], states)]

    @cached_property
    def entropy(self) -> float:
        """Entropy of what this policy makes, in nats."""
        levels = [(probs, self._marginals(position)) for position, probs in enumerate(self._flows(None)[:-1])]
        return -sum(float((probs.unsqueeze(-1) * made * safe_log(made)).sum()) for probs, made in levels)

    def expected(self, last: Tensor, log_factors: Tensor | None = None) -> float:
        """E[last[q_L]·Π_t exp(log_factors[q_t, x_t])] under this policy and the channel; [Q], [Q, K]."""
        return float(self._flows(log_factors)[-1] @ last[self.states[-1]])

    def _flows(self, log_factors: Tensor | None) -> list[Tensor]:
        """P(q_t), weighted by the factors of the letters so far, of the states of every position; [num_t] each."""
        flows = [torch.ones(1, dtype=torch.float64)]
        for position in range(len(self.policies)):
            states = self.states[position]
            made = flows[-1].unsqueeze(-1) * self._marginals(position)
            if log_factors is not None:
                made = made * log_factors[states].exp()
            arriving = torch.zeros(self.automaton.num_states, dtype=torch.float64)
            arriving.index_add_(0, self.automaton.transitions[states].flatten(), made.flatten())
            flows.append(arriving[self.states[position + 1]])
        return flows

    def _marginals(self, position: int) -> Tensor:
        """M(b|t, q) of the states of a position, [num_t, K]."""
        return self.policies[position] @ self.channel.matrix(position)

    def draw(self, num: int, generator: torch.Generator) -> Drawn:
        """Sequences of this policy through the channel."""
        states = torch.zeros(num, dtype=torch.int64)
        log_probs = torch.zeros(num, dtype=torch.float64)
        intentions, outcomes = [], []
        for position in range(len(self.policies)):
            policies = self.policy(position, states)
            intended = torch.multinomial(policies, 1, generator=generator).squeeze(-1)
            came = self.channel.sample(intended, position, generator)
            marginals = policies @ self.channel.matrix(position)
            log_probs += safe_log(marginals.gather(-1, came.unsqueeze(-1)).squeeze(-1))
            states = self.automaton.transitions[states, came]
            intentions.append(intended)
            outcomes.append(came)
        return Drawn(torch.stack(intentions, dim=1), torch.stack(outcomes, dim=1), log_probs)


def automaton_optimum(
    rewards: AutomatonReward, channel: Channel, length: int, tolerance: float = 1e-7
) -> AutomatonOptimum:
    """Solve the pairs (t, q) from the last position back; only states that can be reached.

    Args:
        tolerance: of the iteration at one state; see `blahut_arimoto`.
    """
    channel.check_length(length)
    automaton = rewards.automaton
    states = automaton.reachable(length)
    values = log_flows = rewards.terminal
    policies = []
    for position in reversed(range(length)):
        here = states[position]
        following = automaton.transitions[here]
        steps = 0.0 if rewards.steps is None else rewards.steps[here]
        found = state_optimum(values[following] + steps, channel, position, tolerance)
        policies.append(found.policies)
        log_flows = _scattered(torch.logsumexp(log_flows[following] + steps, dim=-1), here, automaton.num_states)
        values = _scattered(found.values, here, automaton.num_states)
    return AutomatonOptimum(
        automaton=automaton,
        channel=channel,
        value=float(values[0]),
        log_z=float(log_flows[0]),
        states=states,
        policies=policies[::-1],
    )


def _scattered(values: Tensor, states: Tensor, num_states: int) -> Tensor:
    """Values by state, NaN for the others; [num] → [num_states]."""
    return values.new_full((num_states,), torch.nan).index_copy(0, states, values)


def refuse_list() -> NoReturn:
    """What every list of all sequences says."""
    raise TypeError("there are too many sequences to list them; draw some with `attainable.draw`")
