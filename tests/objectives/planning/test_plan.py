"""The plan: exact on a full trie, honest about its frontier on a sparse one, and linear in what was visited."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from stochflow.core.logspace import safe_log
from stochflow.environments.channels import Channel, confusion, noiseless, positional_slip, uniform_slip
from stochflow.environments.rewards import Reward
from stochflow.objectives.planning.plan import (
    PLAN_TOLERANCE,
    Plan,
    least_unplanned_nats,
    make_plan,
    unplanned_nats,
)
from stochflow.sampling.prefix_trie import PrefixTrie
from stochflow.sampling.score_memory import ScoreMemory
from stochflow.surrogates.kmer_ridge import KmerRidge
from stochflow.truth.prefix_tree import attainable_optimum, policy_log_marginals, terminal_log_probs

NUM_TOKENS, LENGTH = 3, 4
CHANNELS = [
    noiseless(NUM_TOKENS),
    uniform_slip(NUM_TOKENS, 0.5),
    positional_slip(NUM_TOKENS, [0.6, 0.0, 0.3, 0.1]),
    confusion([[0.8, 0.15, 0.05], [0.1, 0.8, 0.1], [0.0, 0.3, 0.7]]),
]
over_channels = pytest.mark.parametrize("channel", CHANNELS, ids=lambda channel: channel.name)


def known(channel: Channel) -> Callable[[Tensor, int], Tensor]:
    return lambda sequences, depth: channel.matrix(depth)


def no_frontier(prefixes: Tensor) -> Tensor:
    raise AssertionError(f"a full trie has no frontier, but {prefixes.tolist()} were asked for")


def code(prefixes: Tensor) -> Tensor:
    """Lexicographic number of each prefix among those of its length."""
    powers = NUM_TOKENS ** torch.arange(prefixes.shape[1] - 1, -1, -1)
    return (prefixes * powers).sum(dim=-1)


@pytest.fixture
def log_reward(generator: torch.Generator) -> Tensor:
    return 2.0 * torch.randn(NUM_TOKENS**LENGTH, dtype=torch.float64, generator=generator)


@pytest.fixture
def full_trie(generator: torch.Generator) -> PrefixTrie:
    """All sequences, in batches and in no order."""
    sequences = torch.tensor(list(itertools.product(range(NUM_TOKENS), repeat=LENGTH)))
    trie = PrefixTrie(NUM_TOKENS, LENGTH)
    for batch in sequences[torch.randperm(len(sequences), generator=generator)].split(20):
        trie.insert(batch)
    return trie


def lexicographic(trie: PrefixTrie, level: Tensor, depth: int) -> Tensor:
    """Rows of a full level, put from order of arrival into lexicographic order."""
    prefixes = torch.tensor(list(itertools.product(range(NUM_TOKENS), repeat=depth)), dtype=torch.int64)
    return level[trie.find(prefixes.reshape(NUM_TOKENS**depth, depth))]


@over_channels
def test_on_a_full_trie_the_plan_is_the_attainable_optimum(
    channel: Channel, full_trie: PrefixTrie, log_reward: Tensor
) -> None:
    plan = make_plan(full_trie, log_reward[code(full_trie.sequences)], no_frontier, known(channel))
    for depth in range(LENGTH):
        # the optimum of every subtree, with the channel of its own positions
        below = channel.matrices if len(channel.matrices) == 1 else channel.matrices[depth:]
        rewards = log_reward.reshape(NUM_TOKENS**depth, -1)
        truth = [attainable_optimum(row, Channel(below, "rest", channel.slip), LENGTH - depth).value for row in rewards]
        planned = lexicographic(full_trie, plan.values[depth], depth)
        # each level stops within the tolerance below its own optimum, and values are non-expansive
        torch.testing.assert_close(
            planned, torch.tensor(truth, dtype=torch.float64), atol=(LENGTH - depth) * PLAN_TOLERANCE, rtol=0
        )


@over_channels
def test_the_planned_policy_reaches_the_planned_value(
    channel: Channel, full_trie: PrefixTrie, log_reward: Tensor
) -> None:
    plan = make_plan(full_trie, log_reward[code(full_trie.sequences)], no_frontier, known(channel))
    log_policies = [safe_log(lexicographic(full_trie, level, depth)) for depth, level in enumerate(plan.policies)]
    log_probs = terminal_log_probs(policy_log_marginals(log_policies, channel))
    reached = (log_probs.exp() * (log_reward - log_probs)).sum()
    torch.testing.assert_close(plan.values[0].squeeze(), reached, atol=1e-9, rtol=0)


@over_channels
def test_on_a_full_trie_visits_are_the_true_visitation(
    channel: Channel, full_trie: PrefixTrie, log_reward: Tensor
) -> None:
    plan = make_plan(full_trie, log_reward[code(full_trie.sequences)], no_frontier, known(channel))
    log_policies = [safe_log(lexicographic(full_trie, level, depth)) for depth, level in enumerate(plan.policies)]
    leaves = terminal_log_probs(policy_log_marginals(log_policies, channel)).exp()
    for depth in range(LENGTH):
        visits = lexicographic(full_trie, plan.visits[depth], depth)
        torch.testing.assert_close(visits, leaves.reshape(NUM_TOKENS**depth, -1).sum(dim=-1))


def hand_worked_plan() -> Plan:
    """Only 01 was paid for; V = 1 there, and the frontier is worth 10·(last token) + length."""
    trie = PrefixTrie(2, 2)
    trie.insert(torch.tensor([[0, 1]]))

    def frontier(prefixes: Tensor) -> Tensor:
        return 10.0 * prefixes[:, -1].double() + prefixes.shape[1]

    return make_plan(trie, torch.tensor([1.0]).double(), frontier, known(noiseless(2)))


def test_the_frontier_fills_in_for_children_that_were_never_visited() -> None:
    plan = hand_worked_plan()
    # below 0: V(00) = 10·0 + 2 is a guess, V(01) = 1 was paid for; below the root: V(1) = 10·1 + 1 is a guess
    value_of_0 = math.log(math.exp(2.0) + math.exp(1.0))
    torch.testing.assert_close(plan.child_values[1], torch.tensor([[2.0, 1.0]]).double())
    torch.testing.assert_close(plan.child_values[0], torch.tensor([[value_of_0, 11.0]]).double())
    torch.testing.assert_close(plan.values[0], torch.tensor([math.log(math.exp(value_of_0) + math.exp(11.0))]).double())


def test_visits_lose_what_leaves_through_the_frontier() -> None:
    plan = hand_worked_plan()
    value_of_0 = math.log(math.exp(2.0) + math.exp(1.0))
    staying = math.exp(value_of_0) / (math.exp(value_of_0) + math.exp(11.0))
    assert [level.tolist() for level in plan.visits] == [[1.0], pytest.approx([staying])]


def sparse_trie(num_sequences: int, generator: torch.Generator, length: int = 30) -> PrefixTrie:
    trie = PrefixTrie(4, length)
    trie.insert(torch.randint(4, (num_sequences, length), generator=generator))
    return trie


class Recorder:
    """Zero-valued frontier and a slip world that remember what they were asked."""

    def __init__(self) -> None:
        self.frontier: list[tuple[int, ...]] = []
        self.num_dynamics_rows = 0

    def frontier_values(self, prefixes: Tensor) -> Tensor:
        self.frontier.extend(tuple(row) for row in prefixes.tolist())
        return torch.zeros(len(prefixes), dtype=torch.float64)

    def level_dynamics(self, sequences: Tensor, depth: int) -> Tensor:
        self.num_dynamics_rows += len(sequences)
        return uniform_slip(4, 0.25).matrix(0)


@pytest.mark.parametrize("num_sequences", [20, 60, 180])
def test_work_is_linear_in_the_visited_prefixes_of_a_vast_space(num_sequences: int, generator: torch.Generator) -> None:
    trie, recorder = sparse_trie(num_sequences, generator), Recorder()
    leaf_values = torch.zeros(len(trie), dtype=torch.float64)
    plan = make_plan(trie, leaf_values, recorder.frontier_values, recorder.level_dynamics)
    num_inner = trie.num_nodes - len(trie)
    # every inner prefix has K children: the stored ones, and the frontier, asked for once each
    assert len(recorder.frontier) + trie.num_nodes - 1 == 4 * num_inner
    assert len(set(recorder.frontier)) == len(recorder.frontier)
    assert len(recorder.frontier) + trie.num_nodes <= 4 * trie.num_nodes
    assert trie.num_nodes <= 30 * num_sequences + 1
    assert recorder.num_dynamics_rows == num_inner
    assert sum(level.numel() for level in plan.child_values) == 4 * num_inner


def test_the_frontier_lies_one_token_outside_the_trie(generator: torch.Generator) -> None:
    trie, recorder = sparse_trie(50, generator, length=6), Recorder()
    make_plan(trie, torch.zeros(len(trie), dtype=torch.float64), recorder.frontier_values, recorder.level_dynamics)
    for prefix in recorder.frontier:
        row = torch.tensor([prefix])
        assert trie.find(row).item() == -1
        assert trie.find(row[:, :-1]).item() >= 0


@pytest.mark.parametrize("num_sequences", [20, 180])
def test_visits_of_a_sparse_trie_never_exceed_one(num_sequences: int, generator: torch.Generator) -> None:
    trie, recorder = sparse_trie(num_sequences, generator), Recorder()
    leaf_values = 5.0 * torch.randn(len(trie), dtype=torch.float64, generator=generator)
    plan = make_plan(trie, leaf_values, recorder.frontier_values, recorder.level_dynamics)
    masses = torch.stack([level.sum() for level in plan.visits])
    assert len(masses) == trie.length
    assert masses[0].item() == 1.0
    assert (masses.diff() <= 1e-12).all()
    assert all((level >= 0).all() for level in plan.visits)


@pytest.mark.parametrize("channel", [noiseless(4), uniform_slip(4, 0.25)], ids=lambda channel: channel.name)
@pytest.mark.parametrize("steepness", [1.0, 50.0])
def test_no_plan_has_fewer_unplanned_nats_than_the_bound(
    channel: Channel, steepness: float, generator: torch.Generator
) -> None:
    trie = sparse_trie(40, generator, length=8)
    leaf_values = steepness * torch.rand(len(trie), dtype=torch.float64, generator=generator)
    plan = make_plan(trie, leaf_values, Recorder().frontier_values, known(channel))
    assert least_unplanned_nats(trie, known(channel)) <= unplanned_nats(plan, 4) + 1e-9


@pytest.mark.parametrize("alpha", [0.0, 0.25])
def test_on_one_sequence_the_bound_is_what_the_channel_takes(alpha: float) -> None:
    trie = PrefixTrie(4, 5)
    trie.insert(torch.tensor([[0, 1, 2, 3, 0]]))
    staying = 1.0 - alpha + alpha / 4
    expected = math.log(4) * sum(1.0 - staying**depth for depth in range(1, 5))
    assert least_unplanned_nats(trie, known(uniform_slip(4, alpha))) == pytest.approx(expected, abs=1e-12)


def test_where_the_trie_branches_the_bound_intends_what_leads_furthest() -> None:
    trie = PrefixTrie(4, 3)
    trie.insert(torch.tensor([[0, 0, 0], [1, 0, 0], [1, 1, 0]]))
    aimed, slipped = 0.75 + 0.25 / 4, 0.25 / 4
    after_0, after_1 = aimed, aimed + slipped
    expected = math.log(4) * (2 - aimed * (1 + after_1) - slipped * (1 + after_0))
    assert least_unplanned_nats(trie, known(uniform_slip(4, 0.25))) == pytest.approx(expected, abs=1e-12)


def test_the_bound_reads_dynamics_of_every_prefix() -> None:
    trie = PrefixTrie(2, 3)
    trie.insert(torch.tensor([[0, 0, 0], [1, 0, 0]]))

    def dynamics(sequences: Tensor, depth: int) -> Tensor:
        """The first letter obeys, and after 1 no policy gets a 0 in more than three of ten cases."""
        worse = torch.tensor([[0.3, 0.7], [0.2, 0.8]]).double()
        stays = (sequences[:, :1] == 0) | (depth == 0)
        return torch.where(stays.unsqueeze(-1), torch.eye(2).double(), worse)

    assert least_unplanned_nats(trie, dynamics) == 0.0
    alone = PrefixTrie(2, 3)
    alone.insert(torch.tensor([[1, 0, 0]]))
    assert least_unplanned_nats(alone, dynamics) == pytest.approx(0.7 * math.log(2))


def test_level_dynamics_may_depend_on_the_prefix(full_trie: PrefixTrie, log_reward: Tensor) -> None:
    """The world obeys after an even sum of tokens and slips after an odd one."""
    obeying, slipping = noiseless(NUM_TOKENS).matrix(0), uniform_slip(NUM_TOKENS, 0.8).matrix(0)

    def dynamics(sequences: Tensor, depth: int) -> Tensor:
        odd = sequences[:, :depth].sum(dim=-1) % 2 == 1
        return torch.where(odd[:, None, None], slipping, obeying)

    plan = make_plan(full_trie, log_reward[code(full_trie.sequences)], no_frontier, dynamics)
    last = lexicographic(full_trie, plan.values[-1], LENGTH - 1)
    for row, prefix in enumerate(itertools.product(range(NUM_TOKENS), repeat=LENGTH - 1)):
        channel = uniform_slip(NUM_TOKENS, 0.8 if sum(prefix) % 2 else 0.0)
        truth = attainable_optimum(log_reward.reshape(-1, NUM_TOKENS)[row], channel, 1).value
        assert last[row].item() == pytest.approx(truth, abs=PLAN_TOLERANCE)


def test_a_plan_from_memory_and_model_asks_for_no_score(generator: torch.Generator) -> None:
    class Oracle:
        open = True

        def __call__(self, sequences: Tensor) -> Tensor:
            assert self.open, "a score that was not paid for was touched"
            return (sequences == 1).double().mean(dim=-1)

    oracle, memory, model = Oracle(), ScoreMemory(4, 6), KmerRidge(4, 6)
    reward = Reward(beta=3.0, floor=1e-6, ramp=0.0)
    memory.pay(torch.randint(4, (300, 6), generator=generator), oracle)
    oracle.open = False
    model.fit(memory.sequences, memory.scores)

    def frontier(prefixes: Tensor) -> Tensor:
        tails = torch.zeros(len(prefixes), 6 - prefixes.shape[1], dtype=torch.int64)
        return model.expected_log_reward(torch.cat([prefixes, tails], dim=1), reward, None)

    plan = make_plan(memory.trie, reward.log_reward(memory.scores), frontier, known(uniform_slip(4, 0.25)))
    assert torch.isfinite(plan.values[0]).all()
    # token 1 is what the score counts, and the plan intends it first
    assert plan.policies[0].argmax().item() == 1


def test_a_plan_before_any_visit_is_an_error() -> None:
    recorder = Recorder()
    empty = torch.zeros(0, dtype=torch.float64)
    with pytest.raises(ValueError, match="nothing was visited"):
        make_plan(PrefixTrie(4, 3), empty, recorder.frontier_values, recorder.level_dynamics)
