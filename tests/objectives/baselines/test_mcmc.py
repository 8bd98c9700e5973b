"""Markov chains: what is kept is a fair choice, what is accepted balances, and the states settle at R/Z."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from stochflow.environments import channels
from stochflow.environments.channels import Channel
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.experiments.experiment import Experiment
from stochflow.objectives.baselines.mcmc import MetropolisHastings, Reservoir, accepted, one_letter_changed
from stochflow.sampling.policies import NetworkPolicy, OpenLoopPolicy
from stochflow.truth.prefix_tree import tv_to_target

MANY: dict[str, Any] = {
    "optimiser": {"batch_size": 4096, "updates": 1},
    "budget": {"steps": 40},
    "chains": {"heat": 1.0},
}


# -- what is kept


def test_everything_is_kept_in_order_while_there_is_room(generator: torch.Generator) -> None:
    reservoir = Reservoir(6, 2)
    rows = torch.arange(10).view(5, 2)
    reservoir.add(rows[:2], generator)
    reservoir.add(rows[2:], generator)
    assert reservoir.rows.tolist() == rows.tolist()
    assert reservoir.num_seen == 5


def test_beyond_its_capacity_every_row_is_as_likely_to_be_kept(generator: torch.Generator) -> None:
    num_rounds, capacity, total = 1000, 5, 20
    counts = torch.zeros(total)
    for _ in range(num_rounds):
        reservoir = Reservoir(capacity, 1)
        for part in torch.arange(total).unsqueeze(-1).split([3, 8, 1, 8]):
            reservoir.add(part, generator)
        assert (len(reservoir.rows), reservoir.num_seen) == (capacity, total)
        kept = reservoir.rows.squeeze(-1).long()
        assert len(kept.unique()) == capacity
        counts[kept] += 1
    share = capacity / total
    five_sigma = 5.0 * (share * (1.0 - share) / num_rounds) ** 0.5
    assert (counts / num_rounds - share).abs().max() < five_sigma


# -- moves


def test_a_proposal_changes_one_letter_into_any_other(generator: torch.Generator) -> None:
    sequences = torch.randint(4, (6000, 3), generator=generator)
    changed = one_letter_changed(sequences, 4, generator)
    differs = changed != sequences
    assert torch.equal(differs.sum(dim=-1), torch.ones(6000, dtype=torch.int64))
    kinds = (differs.int().argmax(dim=-1) * 4 + (changed - sequences).sum(dim=-1) % 4).bincount(minlength=12)
    expected = 6000 / 9
    assert (kinds.view(3, 4)[:, 1:] - expected).abs().max() < 5.0 * expected**0.5
    assert kinds.view(3, 4)[:, 0].sum() == 0


def test_what_is_better_is_always_accepted_and_what_is_worse_by_its_ratio(generator: torch.Generator) -> None:
    ratios = torch.tensor([0.0, 3.0, 0.25], dtype=torch.float64)
    ratios[:2] = ratios[:2].exp()
    shares = accepted(ratios.log().expand(10_000, 3), generator).double().mean(dim=0)
    assert shares[:2].tolist() == [1.0, 1.0]
    assert shares[2].item() == pytest.approx(0.25, abs=5.0 * (0.25 * 0.75 / 10_000) ** 0.5)


def proposals(channel: Channel, num_tokens: int, length: int) -> torch.Tensor:
    """q(x|y) of all pairs: one letter changed uniformly, then the channel; rows y, [K^L, K^L]."""
    size = num_tokens**length
    words = torch.arange(size).unsqueeze(-1) // num_tokens ** torch.arange(length - 1, -1, -1) % num_tokens
    one_apart = ((words.unsqueeze(1) != words).sum(dim=-1) == 1).double()
    noise = torch.ones(size, size, dtype=torch.float64)
    for position in range(length):
        noise *= channel.matrix(position)[words[:, position]][:, words[:, position]]
    return one_apart / one_apart.sum(dim=-1, keepdim=True) @ noise


@pytest.mark.parametrize(
    ("channel", "fair"),
    [
        (channels.uniform_slip(4, 0.5), True),
        (channels.dna_synthesis(0.2), True),
        (channels.confusion(torch.tensor([[0.9, 0.1], [0.5, 0.5]], dtype=torch.float64)), False),
    ],
)
def test_symmetric_channels_need_no_correction(channel: Channel, fair: bool) -> None:
    matrix = proposals(channel, channel.num_tokens, 3)
    assert torch.allclose(matrix, matrix.T, atol=1e-12) == fair


@pytest.mark.parametrize("method", ["mcmc", "mars"])
@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_the_states_settle_at_the_target(method: str, noise: float, trained: Callable[..., Experiment]) -> None:
    experiment = trained(method, **MANY, channel={"kind": "uniform-slip", "noise": noise})
    assert experiment.truth is not None
    policy = experiment.policy
    assert isinstance(policy, OpenLoopPolicy)
    # 20 states of each of 4,096 chains over 27 sequences: chains that never moved would be within 0.03
    assert isinstance(experiment.environment, SequenceEnvironment)
    states = policy.terminal_log_probs(SequenceEnvironment(experiment.environment.task, channels.noiseless(3)))
    assert tv_to_target(states, experiment.truth.log_rewards) < 0.03
    uniform = torch.zeros(27, dtype=torch.float64).log_softmax(dim=0)
    assert tv_to_target(uniform, experiment.truth.log_rewards) > 0.1
    assert experiment.trainer.objective.log_z() == pytest.approx(experiment.truth.attainable.log_z, abs=0.1)
    if noise == 0.0:
        assert experiment.truth.evaluate(policy)["tv"] < 0.03


def test_a_hot_start_cools_until_states_are_kept(tiny: Callable[..., Experiment]) -> None:
    objective = tiny("mcmc", chains={"heat": 5.0, "burn_in": 0.5}).trainer.objective
    assert isinstance(objective, MetropolisHastings)
    assert [objective.temperature(p) for p in (0.0, 0.25, 0.5, 0.9)] == [5.0, 3.0, 1.0, 1.0]
    objective = tiny("mcmc", chains={"heat": 5.0, "burn_in": 0.0}).trainer.objective
    assert isinstance(objective, MetropolisHastings)
    assert objective.temperature(0.0) == 1.0


# -- the loop around them


def test_a_chain_stays_or_moves_to_what_came(tiny: Callable[..., Experiment]) -> None:
    trainer = tiny("mcmc").trainer
    objective = trainer.objective
    assert isinstance(objective, MetropolisHastings)
    trainer.train_step()
    before, scores = objective.states.clone(), objective.scores.clone()
    fresh = trainer.collect()
    assert list(objective.updates(fresh, 1, 0.1)) == []
    moved = (objective.states == fresh.outcomes).all(dim=-1)
    stayed = (objective.states == before).all(dim=-1)
    assert bool((moved | stayed).all())
    assert bool(moved[fresh.scores > scores].all())
    assert 0 < int((stayed & ~moved).sum()) < len(before)
    torch.testing.assert_close(objective.scores, torch.where(moved, fresh.scores, scores))


def test_a_smaller_batch_moves_the_first_chains_and_a_larger_one_begins_new_ones(
    tiny: Callable[..., Experiment],
) -> None:
    trainer = tiny("mcmc", optimiser={"batch_size": 10}, budget={"trajectories": 24}).trainer
    objective = trainer.objective
    assert isinstance(objective, MetropolisHastings)
    trainer.train_step()
    trainer.train_step()
    before = objective.states.clone()
    trainer.train_step()
    assert trainer.trajectories == 24
    assert torch.equal(objective.states[4:], before[4:])
    assert objective.kept.num_seen == 10 + 4  # of the second half
    objective.states, objective.scores = objective.states[:3], objective.scores[:3]
    trainer.trajectories = 0
    trainer.train_step()
    assert objective.states.shape == (10, 3)
    torch.testing.assert_close(objective.scores, trainer.learner.memory.lookup(objective.states))


def test_before_anything_is_kept_the_states_of_the_moment_are_judged(tiny: Callable[..., Experiment]) -> None:
    experiment = tiny("mcmc")
    assert isinstance(experiment.policy, NetworkPolicy)
    experiment.trainer.train_step()
    objective, policy = experiment.trainer.objective, experiment.policy
    assert isinstance(objective, MetropolisHastings)
    assert isinstance(policy, OpenLoopPolicy)
    states, counts = objective.states.unique(dim=0, return_counts=True)
    assert torch.equal(policy.sequences, states)
    assert torch.equal(policy.counts, counts.double())


def test_chains_leave_the_network_alone_and_report_no_loss(
    tiny: Callable[..., Experiment], trained: Callable[..., Experiment]
) -> None:
    experiment = trained("mcmc", budget={"steps": 3})
    before = tiny("mcmc").network.state_dict()
    assert all(torch.equal(weight, before[name]) for name, weight in experiment.network.state_dict().items())
    assert "loss" not in experiment.trainer.train_step()
