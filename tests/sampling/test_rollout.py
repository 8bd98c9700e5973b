"""Rollouts: samples follow the exact distribution, the noise is really there, exploration stays in training."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from stochflow.config.layers import resolve
from stochflow.core.arrays import Array
from stochflow.core.random import RandomStreams
from stochflow.environments.channels import Channel, confusion, noiseless, positional_slip, uniform_slip
from stochflow.environments.graphs.environment import GraphEnvironment, longest, nodes_on
from stochflow.environments.graphs.hypergrid import hypergrid
from stochflow.environments.registry import TASKS
from stochflow.environments.sequences.task import Alphabet, Task
from stochflow.experiments.build import build
from stochflow.experiments.experiment import summarise
from stochflow.models.evaluation import AtPrefixes
from stochflow.models.flow_network import FlowNetwork
from stochflow.models.graph_network import GraphNetwork, GraphSampler
from stochflow.sampling.rollout import Exploration, Walk, rollout
from stochflow.truth import dag
from stochflow.truth.prefix_tree import policy_log_marginals, terminal_log_probs
from tests.small_tasks import scored_environment

NUM_TOKENS, LENGTH = 3, 3
NUM_WALKS = 20_000
SKEWED = confusion([[0.7, 0.2, 0.1], [0.0, 0.5, 0.5], [0.3, 0.3, 0.4]])
POSITIONAL = positional_slip(NUM_TOKENS, [0.0, 0.9, 0.3])
NEVER_LAST = torch.tensor([0.75, 0.25, 0.0], dtype=torch.float64)


class Always:
    """The same policy in every state; keeps what it was told came."""

    def __init__(self, policy: Tensor, batch_size: int) -> None:
        self.log_probs = policy.clamp_min(1e-30).log().expand(batch_size, -1).numpy()
        self.seen: list[Array] = []

    def allowed(self) -> None:
        return None

    def log_policy(self) -> Array:
        return self.log_probs

    def advance(self, outcomes: Array) -> None:
        self.seen.append(outcomes)


def walk_with(
    policy: Tensor, channel: Channel, length: int = LENGTH, exploration: Exploration | None = None, seed: int = 0
) -> Walk:
    environment = scored_environment(channel, length)
    return rollout(environment, Always(policy, NUM_WALKS), NUM_WALKS, RandomStreams(seed), exploration)


def make_network(seed: int = 0) -> FlowNetwork:
    """Sharp and different in every state."""
    generator = torch.Generator().manual_seed(seed)
    network = FlowNetwork(NUM_TOKENS, LENGTH, (1, 2), 16, 1)
    network.initialise(generator)
    with torch.no_grad():
        network.policy_head.weight.normal_(generator=generator)
    return network


def network_walk(network: FlowNetwork, channel: Channel, seed: int = 0, **exploration: float) -> Walk:
    environment, sampler = scored_environment(channel, LENGTH), network.sampler(NUM_WALKS)
    return rollout(environment, sampler, NUM_WALKS, RandomStreams(seed), Exploration(**exploration))


def assert_shares(counts: Tensor, expected: Tensor) -> None:
    """Observed shares lie within five standard errors of their probabilities."""
    total = counts.sum()
    errors = (counts / total - expected).abs()
    tolerance = 5.0 * (expected * (1.0 - expected) / total).sqrt() + 1e-12
    assert bool((errors <= tolerance).all()), f"off by {errors.max():.4f} with {int(total)} samples"


def token_counts(tokens: Tensor, num_tokens: int = NUM_TOKENS) -> Tensor:
    return tokens.flatten().bincount(minlength=num_tokens).double()


# -- the world


@pytest.mark.parametrize(
    "channel", [noiseless(3), uniform_slip(3, 0.5), SKEWED, POSITIONAL], ids=lambda channel: channel.name
)
def test_sequences_come_as_often_as_the_exact_distribution_says(channel: Channel) -> None:
    network = make_network()
    outcomes = network_walk(network, channel).outcomes
    codes = (outcomes * torch.tensor([9, 3, 1])).sum(dim=-1)
    exact = terminal_log_probs(policy_log_marginals(network.tree_log_policies(), channel)).exp()
    assert exact.max() > 1.5 / 27  # not uniform, or anything would match
    assert_shares(codes.bincount(minlength=27).double(), exact)


def test_without_noise_every_intention_comes_true() -> None:
    walk = network_walk(make_network(), noiseless(NUM_TOKENS))
    assert torch.equal(walk.outcomes, walk.intentions)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.99])
def test_outcomes_differ_from_intentions_as_often_as_the_slip_says(alpha: float) -> None:
    walk = network_walk(make_network(), uniform_slip(NUM_TOKENS, alpha))
    slipped = (walk.outcomes != walk.intentions).flatten()
    rate = alpha * (1.0 - 1.0 / NUM_TOKENS)
    assert_shares(slipped.long().bincount(minlength=2).double(), torch.tensor([1.0 - rate, rate]))


def test_each_position_has_its_own_noise() -> None:
    walk = network_walk(make_network(), POSITIONAL)
    slipped = (walk.outcomes != walk.intentions).double().mean(dim=0)
    assert slipped[0] == 0.0
    assert slipped[1].item() == pytest.approx(0.6, abs=5 * math.sqrt(0.24 / NUM_WALKS))
    assert slipped[2].item() == pytest.approx(0.2, abs=5 * math.sqrt(0.16 / NUM_WALKS))


def test_the_sampler_walks_on_from_outcomes_not_from_intentions() -> None:
    sampler = Always(NEVER_LAST, NUM_WALKS)
    walk = rollout(scored_environment(uniform_slip(3, 0.9), LENGTH), sampler, NUM_WALKS, RandomStreams(0))
    assert torch.equal(torch.from_numpy(np.stack(sampler.seen, axis=1)), walk.outcomes)
    assert not torch.equal(walk.outcomes, walk.intentions)


def test_the_network_sampler_gives_the_policy_of_the_prefix_it_stands_on(generator: torch.Generator) -> None:
    network = make_network()
    tokens = torch.randint(NUM_TOKENS, (7, LENGTH), generator=generator)
    expected = network.evaluate(AtPrefixes(tokens)).heads().log_policy
    sampler = network.sampler(7)
    for depth in range(LENGTH):
        torch.testing.assert_close(torch.from_numpy(sampler.log_policy()), expected[:, depth])
        sampler.advance(tokens[:, depth].numpy())


# -- how intentions are drawn


def test_the_default_behaviour_is_the_policy() -> None:
    log_policy = torch.tensor([[0.5, 0.3, 0.2], [1.0, 1e-30, 1e-30]], dtype=torch.float64).log()
    torch.testing.assert_close(Exploration().behaviour(log_policy), log_policy.exp())
    walk = walk_with(NEVER_LAST, noiseless(3))
    assert_shares(token_counts(walk.intentions), NEVER_LAST)


def test_epsilon_mixes_in_the_uniform_and_temperature_flattens() -> None:
    log_policy = NEVER_LAST.clamp_min(1e-30).log()
    mixed = Exploration(epsilon=0.3).behaviour(log_policy)
    torch.testing.assert_close(mixed, torch.tensor([0.625, 0.275, 0.1], dtype=torch.float64))
    # √¾ : √¼ = √3 : 1
    flat = Exploration(temperature=2.0).behaviour(log_policy)
    share = math.sqrt(3) / (1 + math.sqrt(3))
    torch.testing.assert_close(flat, torch.tensor([share, 1 - share, 0.0], dtype=torch.float64), atol=1e-12, rtol=0)
    both = Exploration(epsilon=0.3, temperature=2.0).behaviour(log_policy)
    torch.testing.assert_close(both, 0.7 * flat + 0.1, atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    "exploration", [Exploration(epsilon=0.3), Exploration(temperature=4.0), Exploration(epsilon=0.5, temperature=0.5)]
)
def test_intentions_are_drawn_from_the_behaviour(exploration: Exploration) -> None:
    walk = walk_with(NEVER_LAST, uniform_slip(3, 0.5), exploration=exploration)
    expected = exploration.behaviour(NEVER_LAST.clamp_min(1e-30).log())
    assert_shares(token_counts(walk.intentions), expected)
    assert (expected - NEVER_LAST).abs().max() > 0.05


def test_the_behaviours_log_probability_is_kept() -> None:
    network = make_network()
    exploration = {"epsilon": 0.2, "temperature": 1.5}
    walk = network_walk(network, uniform_slip(NUM_TOKENS, 0.5), **exploration)
    with torch.no_grad():
        log_policy = network.evaluate(AtPrefixes(walk.outcomes)).heads().log_policy[:, :-1]
    behaviour = Exploration(**exploration).behaviour(log_policy)
    expected = behaviour.gather(-1, walk.intentions.unsqueeze(-1)).squeeze(-1).log()
    torch.testing.assert_close(walk.log_behaviour, expected, atol=1e-5, rtol=0)
    assert bool(walk.valid.all())


# -- random starting prefixes


def test_restarted_walks_begin_with_a_random_prefix_that_is_not_theirs() -> None:
    length, share = 4, 0.6
    certain = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    walk = walk_with(certain, noiseless(3), length, Exploration(restarts=share))
    # once a walk decides for itself it always does
    assert bool((walk.valid.int().diff(dim=1) >= 0).all())
    assert bool(walk.valid[:, -1].all())
    starts = (~walk.valid).sum(dim=1)
    expected = torch.full((length,), share / length, dtype=torch.float64)
    expected[0] += 1.0 - share
    assert_shares(token_counts(starts, length), expected)
    # the policy and the world make only zeros; the prefix is anything
    assert bool((walk.outcomes[walk.valid] == 0).all())
    assert_shares(token_counts(walk.outcomes[~walk.valid]), torch.full((3,), 1 / 3, dtype=torch.float64))


def test_every_walk_starts_at_the_root_by_default_and_none_has_to_with_full_restarts() -> None:
    assert bool(walk_with(NEVER_LAST, noiseless(3)).valid.all())
    restarted = walk_with(NEVER_LAST, noiseless(3), exploration=Exploration(restarts=1.0))
    # a prefix of length zero is one of three
    assert_shares(token_counts(restarted.valid[:, 0].long(), 2), torch.tensor([2 / 3, 1 / 3]))
    # only decisions have a probability: log ¾ or log ¼
    assert torch.equal(restarted.log_behaviour < -0.2, restarted.valid)
    assert bool((restarted.log_behaviour[~restarted.valid] == 0).all())


def test_the_policy_sees_the_random_prefix() -> None:
    sampler = Always(NEVER_LAST, NUM_WALKS)
    environment = scored_environment(noiseless(3), LENGTH)
    walk = rollout(environment, sampler, NUM_WALKS, RandomStreams(0), Exploration(restarts=1.0))
    assert torch.equal(torch.from_numpy(np.stack(sampler.seen, axis=1)), walk.outcomes)


# -- seeds


def as_tuple(walk: Walk) -> tuple[Tensor, ...]:
    return walk.intentions, walk.outcomes, walk.valid, walk.log_behaviour


def test_the_same_seed_gives_the_same_walk_and_another_one_another() -> None:
    network, channel = make_network(), uniform_slip(NUM_TOKENS, 0.5)
    settings = {"epsilon": 0.1, "restarts": 0.5}
    first, again, other = (network_walk(network, channel, seed, **settings) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(as_tuple(first), as_tuple(again), strict=True))
    assert not torch.equal(first.outcomes, other.outcomes)
    assert not torch.equal(first.intentions, other.intentions)


def test_intentions_and_noise_have_streams_of_their_own() -> None:
    def walk(policy_seed: int, channel_seed: int) -> Walk:
        streams = {
            "policy": torch.Generator().manual_seed(policy_seed),
            "channel": torch.Generator().manual_seed(channel_seed),
        }
        return rollout(scored_environment(uniform_slip(3, 0.9), LENGTH), Always(NEVER_LAST, 500), 500, streams)

    first, other_noise, other_policy = walk(0, 1), walk(0, 2), walk(3, 1)
    assert torch.equal(first.intentions, other_noise.intentions)
    assert not torch.equal(first.outcomes, other_noise.outcomes)
    assert not torch.equal(first.intentions, other_policy.intentions)


def test_walking_leaves_no_gradient_behind() -> None:
    walk = network_walk(make_network(), noiseless(NUM_TOKENS), epsilon=0.1)
    assert not walk.log_behaviour.requires_grad


# -- on a graph


GRID = hypergrid("3,4", slip=0.25)


def grid_network() -> GraphNetwork:
    made = GraphNetwork(GRID, width=8, num_layers=1)
    made.initialise(RandomStreams(0)["init"])
    torch.nn.init.normal_(made.policy_head.weight, generator=torch.Generator().manual_seed(1))
    return made


@pytest.mark.parametrize("num", [16, 200])  # read one by one, and each state once
@pytest.mark.parametrize("exploration", [Exploration(), Exploration(epsilon=0.2, temperature=1.5)])
def test_rows_of_the_network_give_the_episodes_of_its_table(num: int, exploration: Exploration) -> None:
    made = grid_network()
    samplers = [GraphSampler(GRID, num, policy) for policy in (made.policy_table(), made)]
    walks = [rollout(GraphEnvironment(GRID), sampler, num, RandomStreams(3), exploration) for sampler in samplers]
    for name in ("intentions", "outcomes", "valid"):
        assert torch.equal(*(getattr(each, name) for each in walks))
    torch.testing.assert_close(walks[0].log_behaviour, walks[1].log_behaviour, atol=1e-5, rtol=1e-5)
    assert walks[0].valid.shape == (num, GRID.max_steps)


def test_a_graph_without_noise_draws_no_outcomes() -> None:
    still = hypergrid("3,4", slip=0.0)
    assert (still.noiseless, GRID.noiseless) == (True, False)
    generators = RandomStreams(0)
    before = generators["channel"].get_state()
    made = rollout(GraphEnvironment(still), GraphSampler(still, 16, grid_network().policy_table()), 16, generators)
    assert torch.equal(generators["channel"].get_state(), before)
    assert torch.equal(made.intentions[made.valid], made.outcomes[made.valid])


def test_nothing_is_evaluated_after_the_end_of_all_episodes() -> None:
    asked: list[int] = []
    stop = torch.full((1, GRID.num_actions), -80.0, dtype=torch.float64)
    stop[:, -1] = 0.0

    class Stopping(GraphNetwork):
        def policy_rows(self, states: Tensor) -> Tensor:
            asked.append(len(states))
            return stop.expand(len(states), -1)

    environment = GraphEnvironment(GRID)
    made = rollout(environment, GraphSampler(GRID, 8, Stopping(GRID, 1, 0)), 8, RandomStreams(0))
    assert asked == [8]
    assert made.valid.sum(dim=1).tolist() == [1] * 8
    assert longest(made.valid) == 1
    assert environment.made(made.outcomes, made.valid).tolist() == [0] * 8


@pytest.mark.parametrize("exploration", [Exploration(), Exploration(epsilon=0.3, temperature=2.0)])
def test_the_behaviour_on_a_graph_stays_with_possible_intentions_and_is_kept(exploration: Exploration) -> None:
    table = grid_network().policy_table()
    made = rollout(GraphEnvironment(GRID), GraphSampler(GRID, 500, table), 500, RandomStreams(0), exploration)
    states = nodes_on(GRID, made.outcomes, made.valid)[:, :-1]
    assert bool(GRID.valid_actions[states[made.valid], made.intentions[made.valid]].all())
    behaviour = exploration.behaviour(table, GRID.valid_actions)
    expected = behaviour[states[made.valid], made.intentions[made.valid]].log()
    torch.testing.assert_close(made.log_behaviour[made.valid].double(), expected, atol=1e-6, rtol=0)
    assert bool((made.log_behaviour[~made.valid] == 0).all())


def test_objects_come_as_often_as_the_exact_distribution_says() -> None:
    table, environment = grid_network().policy_table(), GraphEnvironment(GRID)
    made = rollout(environment, GraphSampler(GRID, NUM_WALKS, table), NUM_WALKS, RandomStreams(0))
    exact = dag.object_log_probs(GRID, table).exp()
    assert exact.max() > 1.5 / GRID.num_objects
    assert_shares(environment.made(made.outcomes, made.valid).bincount(minlength=GRID.num_objects).double(), exact)


# -- evaluation


class Ramp(Task):
    """Score grows with the sequence read as a number."""

    name = "ramp"
    alphabet = Alphabet("ABC")
    length = LENGTH
    mode_threshold = 0.5
    description = "A slope."

    def score(self, tokens: Tensor) -> Tensor:
        return (tokens * torch.tensor([9, 3, 1])).sum(dim=-1).double() / 26


def test_evaluation_draws_from_the_policy_itself_whatever_the_exploration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "ramp", Ramp)

    def judged(exploration: dict[str, Any]) -> tuple[Any, Any]:
        settings = {
            "task": "ramp",
            "device": "cpu",
            "channel": {"noise": 0.25},
            "model": {"width": 16, "kmers": [1, 2], "num_layers": 1},
            "exploration": exploration,
            "evaluation": {"num_samples": 5000},
        }
        experiment = build(resolve([settings]))
        experiment.network.load_state_dict(make_network().state_dict())
        return summarise(experiment)

    summary, sampled = judged({})
    explored_summary, explored = judged({"epsilon": 0.9, "temperature": 5.0})
    assert explored_summary == summary
    assert all(torch.equal(a, b) for a, b in zip(as_tuple(explored.walk), as_tuple(sampled.walk), strict=True))
    assert torch.equal(explored.log_probs, sampled.log_probs)
    exact = terminal_log_probs(policy_log_marginals(make_network().tree_log_policies(), uniform_slip(3, 0.25))).exp()
    codes = (sampled.walk.outcomes * torch.tensor([9, 3, 1])).sum(dim=-1)
    assert_shares(codes.bincount(minlength=27).double(), exact)
    torch.testing.assert_close(sampled.log_probs, exact.log()[codes], atol=1e-5, rtol=0)
