"""Masks, bounds and scores of designs that differ in length."""

import torch
from torch import Tensor

from stochflow.core.random import RandomStreams
from stochflow.environments.channels import uniform_slip
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.environments.sequences.task import Task
from stochflow.environments.sequences.variable_length import (
    EditChannel,
    LengthMask,
    LengthRules,
    StopAlphabet,
    VariableTask,
)
from stochflow.models.evaluation import AtPrefixes
from stochflow.models.flow_network import FlowNetwork
from stochflow.sampling.rollout import rollout

RULES = LengthRules(2, 2, 3, deletion=0.2, duplication=0.2)
A, B, STOP, GAP, AA, BB = range(6)


class Lengths(Task):
    """Scores a design by its number of letters, and remembers what it was asked."""

    name, description, mode_threshold, length = "lengths", "", 0.0, 3
    alphabet = StopAlphabet("AB", RULES)

    def __init__(self) -> None:
        self.asked: list[str] = []

    def score(self, tokens: Tensor) -> Tensor:
        designs = self.alphabet.decode(tokens)
        self.asked += designs
        return torch.tensor([len(design) for design in designs], dtype=torch.float64)


def test_what_may_be_intended_follows_from_what_is_written() -> None:
    mask = LengthMask(RULES)
    rows = torch.tensor([[A, B, STOP], [AA, A, GAP], [GAP, GAP, A], [A, BB, STOP]])
    letters, stop, both = {A, B}, {STOP}, {A, B, STOP}
    expected = [
        [letters, letters, both, stop],
        [letters, both, stop, stop],
        [letters, letters, letters, letters],
        [letters, letters, stop, stop],
    ]
    allowed = mask.all_prefixes(rows)
    assert [[set(state.nonzero().flatten().tolist()) for state in row] for row in allowed] == expected
    for depth in range(4):
        assert torch.equal(mask.next(rows[:, :depth]), allowed[:, depth])
        assert torch.equal(mask.at(rows, torch.full((4,), depth)), allowed[:, depth])


def test_designs_out_of_bounds_score_zero_and_nobody_is_asked() -> None:
    inner = Lengths()
    task = VariableTask(inner, RULES)
    rows = torch.tensor([[A, B, STOP], [A, A, BB], [GAP, GAP, A], [AA, B, STOP], [GAP, BB, STOP]])
    assert task.score(rows).tolist() == [2.0, 0.0, 0.0, 3.0, 2.0]
    assert inner.asked == ["AB", "AAB", "BB"]
    assert task.known(rows).tolist() == [True] * 5
    assert task.free(rows).tolist() == [False, True, True, False, False]
    feasible = task.feasible(rows)
    assert feasible is not None
    assert feasible.tolist() == [True, False, False, True, True]
    reward = Reward(beta=2.0, floor=1e-6, ramp=0.0)
    torch.testing.assert_close(
        task.log_reward(rows, task.score(rows), reward).exp(),
        torch.tensor([4.0, 1e-6, 1e-6, 9.0, 4.0], dtype=torch.float64),
    )
    assert VariableTask(inner, LengthRules(2, 2, 3)).feasible(rows) is None


def test_designs_are_their_letters_filled_up() -> None:
    task = VariableTask(Lengths(), RULES)
    rows = torch.tensor([[A, B, STOP], [A, A, BB], [GAP, GAP, A]])
    assert task.designs(rows).tolist() == [[A, B, STOP, STOP], [A, A, B, B], [A, STOP, STOP, STOP]]
    assert task.padding == STOP


def test_a_rollout_keeps_to_the_rules() -> None:
    network = FlowNetwork(RULES.num_tokens, 3, (1,), 8, 0)
    network.initialise(torch.Generator().manual_seed(0))
    network.mask, network.stop = LengthMask(RULES), RULES.stop
    environment = SequenceEnvironment(VariableTask(Lengths(), RULES), EditChannel(uniform_slip(2, 0.5), RULES))
    walk = rollout(environment, network.sampler(2000), 2000, RandomStreams(0))
    assert bool(RULES.possible(walk.outcomes).all())
    assert int(walk.intentions.max()) == STOP
    # noise passes both bounds now and then, and every token comes
    assert sorted(walk.outcomes.unique().tolist()) == [A, B, STOP, GAP, AA, BB]
    lengths = (RULES.written(walk.outcomes) != STOP).sum(dim=1)
    assert sorted(lengths.unique().tolist()) == [0, 1, 2, 3, 4]


def test_after_a_stop_there_is_one_completion() -> None:
    network = FlowNetwork(RULES.num_tokens, 3, (1,), 8, 0)
    network.initialise(torch.Generator().manual_seed(0))
    network.mask, network.stop = LengthMask(RULES), RULES.stop
    rows = torch.tensor([[AA, STOP, STOP], [A, B, A]])
    flows = network.evaluate(AtPrefixes(rows)).heads().log_flow
    log_k = torch.log(torch.tensor(6.0))
    torch.testing.assert_close(flows, log_k * torch.tensor([[3.0, 2.0, 0.0, 0.0], [3.0, 2.0, 1.0, 0.0]]))
    children = network.children_along(rows, torch.ones_like(rows, dtype=torch.bool)).log_flow
    assert children[0, 1].tolist() == [float(log_k)] * 2 + [0.0] + [float(log_k)] * 3
    assert not bool(children[0, 2].any())
    for depth in range(1, 4):
        torch.testing.assert_close(network.log_flow_of(rows[:, :depth]), flows[:, depth])
        depths = torch.full((2,), depth)
        torch.testing.assert_close(network.evaluate(AtPrefixes(rows, depths)).heads().log_flow, flows[:, depth])
        torch.testing.assert_close(network.log_completions(rows[:, :depth]).float(), flows[:, depth])
