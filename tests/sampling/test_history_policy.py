"""Policies that read the pairs so far: sampling, evaluation and the probability of what they make."""

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from stochflow.config.context import ReadingConfig
from stochflow.core.errors import ConfigError
from stochflow.core.logspace import pick
from stochflow.environments.channels import Channel, uniform_slip
from stochflow.environments.memory_channels import mixture
from stochflow.models.evaluation import AlongPaths, AtPrefixes
from stochflow.models.history import HistoryDynamics, HistoryNetwork
from stochflow.models.transformer_body import TransformerBody
from stochflow.sampling.history_policy import HistoryPolicy
from stochflow.sampling.policies import policy_of
from stochflow.sampling.rollout import Walk

K, LENGTH = 2, 3
EVERYTHING = torch.tensor(list(itertools.product(range(K), repeat=LENGTH)))


def make_network(join: str = "scale-shift", body: str = "kmer") -> HistoryNetwork:
    settings = ReadingConfig.model_validate({"reads": "history", "width": 8, "heads": 2, "layers": 2, "join": join})
    transformer = TransformerBody(K, LENGTH, 8, 1, 2) if body == "transformer" else None
    network = HistoryNetwork(K, LENGTH, () if transformer else (1, 2), 8, 1, settings, transformer)
    generator = torch.Generator().manual_seed(0)
    network.initialise(generator)
    with torch.no_grad():  # heads start at zero
        for weight in network.parameters():
            weight.add_(0.5 * torch.randn(weight.shape, generator=generator))
        if body == "kmer":
            network.body.embedding.weight[0].zero_()  # type: ignore[index]  # stands for no k-mer
    return network


def walk_of(intentions: Tensor, outcomes: Tensor) -> Walk:
    return Walk(intentions, outcomes, torch.ones_like(outcomes, dtype=torch.bool), torch.zeros(outcomes.shape))


def all_pairs() -> tuple[Tensor, Tensor]:
    pairs = torch.tensor(list(itertools.product(range(K), repeat=2 * LENGTH)))
    return pairs[:, :LENGTH], pairs[:, LENGTH:]


def log_policy(network: HistoryNetwork, intentions: Tensor, outcomes: Tensor) -> Tensor:
    where = AlongPaths(outcomes, torch.ones_like(outcomes, dtype=torch.bool), intentions=intentions)
    return network.evaluate(where).heads().log_policy.detach()


@pytest.mark.parametrize("join", ["scale-shift", "concatenate"])
@pytest.mark.parametrize("body", ["kmer", "transformer"])
def test_step_by_step_with_kept_keys_it_says_what_it_says_along_whole_paths(join: str, body: str) -> None:
    network = make_network(join, body)
    intentions, outcomes = all_pairs()
    expected, sampler = log_policy(network, intentions, outcomes), network.sampler(len(outcomes))
    for time in range(LENGTH):
        found = torch.log_softmax(torch.from_numpy(sampler.log_policy()), dim=-1)
        torch.testing.assert_close(found, expected[:, time], atol=1e-4, rtol=0)
        sampler.observe(intentions[:, time].numpy(), outcomes[:, time].numpy())  # type: ignore[attr-defined]


def test_it_reads_intentions_of_the_past_and_nothing_of_the_future() -> None:
    network = make_network()
    came = torch.zeros(1, LENGTH, dtype=torch.int64)
    meant, other = came.clone(), came.clone()
    other[0, 1] = 1
    one, two = log_policy(network, meant, came), log_policy(network, other, came)
    torch.testing.assert_close(one[:, :2], two[:, :2])
    assert not torch.allclose(one[:, 2], two[:, 2])


def test_the_backward_policy_is_not_told_the_intention_that_it_is_asked_for() -> None:
    network = make_network()
    came = torch.zeros(2, LENGTH, dtype=torch.int64)
    meant = torch.tensor([[0, 1, 0], [0, 1, 1]])
    where = AlongPaths(came, came.bool() | True, "learned", intentions=meant)
    log_backward = network.evaluate(where).heads().log_backward
    assert log_backward is not None
    torch.testing.assert_close(log_backward[0], log_backward[1])
    torch.testing.assert_close(log_backward.exp().sum(dim=-1), torch.ones(2, LENGTH))


@pytest.mark.parametrize("channel", [mixture(K, [0.1, 0.8]), uniform_slip(K, 0.4)], ids=lambda channel: channel.name)
def test_the_bounds_of_the_probability_of_an_object_meet_at_the_sum_over_intentions(channel: Channel) -> None:
    network = make_network()
    policy = policy_of(network)
    assert isinstance(policy, HistoryPolicy)
    intentions, outcomes = all_pairs()
    steps = pick(log_policy(network, intentions, outcomes), intentions).double().sum(dim=-1)
    if hasattr(channel, "log_prob"):
        steps = steps + channel.log_prob(intentions, outcomes)
    else:
        steps = steps + channel.log_matrices(LENGTH)[torch.arange(LENGTH), intentions, outcomes].sum(dim=-1)
    exact = torch.logsumexp(steps.view(len(EVERYTHING), -1), dim=0)  # intentions stand first
    assert float(exact.exp().sum()) == pytest.approx(1.0)
    low, high = policy.log_bounds(walk_of(EVERYTHING, EVERYTHING), channel, num_histories=4000)
    torch.testing.assert_close(low, exact, atol=0.02, rtol=0)
    torch.testing.assert_close(high, exact, atol=0.02, rtol=0)


def test_a_prefix_without_its_history_is_refused() -> None:
    network = make_network()
    with pytest.raises(ValueError, match="along paths"):
        network.evaluate(AtPrefixes(EVERYTHING))
    with pytest.raises(ValueError, match="intentions"):
        network.evaluate(AlongPaths(EVERYTHING, EVERYTHING.bool()))
    with pytest.raises(ValueError, match="observe"):
        network.sampler(1).advance(np.zeros(1, np.int64))


def test_a_history_longer_than_the_network_was_built_for_is_refused_in_one_sentence() -> None:
    longer = torch.zeros(1, LENGTH + 1, dtype=torch.int64)
    with pytest.raises(ConfigError, match="built for"):
        make_network().history.contexts(longer, longer)


def test_dynamics_that_read_history_learn_which_machine_it_is() -> None:
    channel, generator = mixture(K, [0.0, 0.8]), torch.Generator().manual_seed(0)
    settings = ReadingConfig(reads="history", width=16, heads=2)
    model = HistoryDynamics(K, LENGTH, "position", settings)
    model.initialise(generator)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        intended = torch.randint(K, (256, LENGTH), generator=generator)
        came = channel.transmit(intended, generator)
        log_matrices = model.log_matrices(came, intentions=intended)
        rows = log_matrices.gather(-2, intended[..., None, None].expand(-1, -1, 1, K)).squeeze(-2)
        loss = -pick(rows, came).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    intended, came = all_pairs()
    true, shares = channel.log_matrices_along(intended, came), channel.log_prob(intended, came).exp() / K**LENGTH
    learned = model.log_matrices(came, intentions=intended).detach().double()
    # pairs that can happen, by how often they do
    excess = (shares * (true.exp() * (true - learned)).sum(dim=-1).mean(dim=(-2, -1))).sum()
    mean = (shares * (true.exp() * (true - channel.log_matrices(LENGTH))).sum(dim=-1).mean(dim=(-2, -1))).sum()
    assert float(excess) < 0.01 < float(mean)
