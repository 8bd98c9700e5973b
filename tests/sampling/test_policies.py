"""What can be judged: exact distributions of policies that look and of policies that do not."""

import math

import pytest
import torch
from torch import Tensor

from stochflow.environments import channels
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.environments.sequences.task import Alphabet, Task
from stochflow.evaluation.samples import draw, dynamics_metrics
from stochflow.models.dynamics.tabular import KnownDynamics
from stochflow.models.evaluation import AtPrefixes
from stochflow.models.flow_network import FlowNetwork
from stochflow.sampling.policies import MarkovPolicy, NetworkPolicy, OpenLoopPolicy, policy_of
from stochflow.sampling.rollout import Walk
from stochflow.truth.prefix_tree import kl_to_target
from stochflow.truth.truth import SequenceTruth

SKEWED = torch.tensor([[0.8, 0.15, 0.05], [0.3, 0.6, 0.1], [0.0, 0.2, 0.8]], dtype=torch.float64)
CHANNELS = {
    "none": channels.noiseless(3),
    "slip": channels.uniform_slip(3, 0.4),
    "positional": channels.positional(torch.stack([SKEWED, SKEWED.flip(0, 1), torch.eye(3, dtype=torch.float64)])),
}
KEPT = torch.tensor([[0, 1, 2], [2, 2, 1], [0, 1, 2], [1, 0, 0], [2, 2, 2], [0, 1, 2]])
WORDS = torch.cartesian_prod(*[torch.arange(3)] * 3)
REWARD = Reward(beta=2.0, floor=1e-6, ramp=0.0)


class Sums(Task):
    """The score of a sequence is one more than the sum of its letters."""

    name = "sums"
    alphabet = Alphabet("ABC")
    mode_threshold = 5.0
    description = "adds letters"

    def __init__(self, length: int = 3) -> None:
        self.length = length

    def score(self, tokens: Tensor) -> Tensor:
        return tokens.sum(dim=-1).double() + 1.0


ENVIRONMENTS = {name: SequenceEnvironment(Sums(), channel) for name, channel in CHANNELS.items()}


def walk_to(outcomes: Tensor) -> Walk:
    """Episodes that brought these sequences."""
    return Walk(outcomes, outcomes, torch.ones_like(outcomes, dtype=torch.bool), torch.zeros(outcomes.shape))


def by_definition(name: str) -> Tensor:
    """P(x) = mean over the list of Π_t P_t(x_t|y_t), [27]."""
    channel = CHANNELS[name]
    return torch.stack(
        [torch.stack([channel.matrix(t)[KEPT[:, t], word[t]] for t in range(3)]).prod(dim=0).mean() for word in WORDS]
    )


@pytest.mark.parametrize("many_letters", [False, True])
@pytest.mark.parametrize("name", CHANNELS)
def test_the_distribution_of_a_list_is_pushed_through_the_channel(
    name: str, many_letters: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if many_letters:
        monkeypatch.setattr("stochflow.sampling.policies._FEW_TOKENS", 2)
    policy, expected = OpenLoopPolicy(KEPT, 3), by_definition(name)
    found = policy.terminal_log_probs(ENVIRONMENTS[name])
    torch.testing.assert_close(found.exp(), expected, atol=1e-15, rtol=1e-12)
    reachable = expected > 0
    found = policy.log_probs(walk_to(WORDS[reachable]), ENVIRONMENTS[name])
    torch.testing.assert_close(found, expected[reachable].log())


class NotTwice:
    """No letter may be intended after itself."""

    binding = False

    def next(self, tokens: Tensor) -> Tensor:
        if not tokens.shape[1]:
            return torch.ones(len(tokens), 3, dtype=torch.bool)
        return tokens[:, -1:] != torch.arange(3)

    all_prefixes = at = alive = next


@pytest.mark.parametrize("mask", [None, NotTwice()])
@pytest.mark.parametrize("name", CHANNELS)
def test_tables_of_last_letters_have_an_exact_distribution(
    name: str, mask: NotTwice | None, generator: torch.Generator
) -> None:
    tables = [torch.rand(rows, 3, generator=generator, dtype=torch.float64).softmax(dim=-1) for rows in (1, 3, 3)]
    policy, environment = MarkovPolicy(tables, mask), ENVIRONMENTS[name]
    expected = []
    for word in WORDS:
        rows = [tables[0][0], tables[1][word[0]], tables[2][word[1]]]
        if mask is not None:
            rows = [row * mask.next(word[None, :t])[0] for t, row in enumerate(rows)]
        marginals = [row / row.sum() @ CHANNELS[name].matrix(t) for t, row in enumerate(rows)]
        expected.append(torch.stack([made[letter] for made, letter in zip(marginals, word, strict=True)]).prod())
    probs = torch.stack(expected)
    torch.testing.assert_close(policy.terminal_log_probs(environment).exp(), probs, atol=1e-15, rtol=1e-12)
    torch.testing.assert_close(policy.log_probs(walk_to(WORDS), environment).exp(), probs, atol=1e-15, rtol=1e-12)
    drawn = draw(policy, environment, 4000, generator)
    counts = (drawn.made * torch.tensor([9, 3, 1])).sum(dim=-1).bincount(minlength=27)
    assert float((counts / 4000 - probs).abs().max()) < 5.0 * 0.5 / 4000**0.5
    visits = policy.visits(drawn.walk, environment)
    assert float(visits.sum()) == pytest.approx(1.0)


@pytest.mark.parametrize("name", CHANNELS)
def test_a_list_is_drawn_as_its_exact_distribution_says(name: str, generator: torch.Generator) -> None:
    num = 20_000
    sampled = draw(OpenLoopPolicy(KEPT, 3), ENVIRONMENTS[name], num, generator)
    codes = (sampled.walk.outcomes * torch.tensor([9, 3, 1])).sum(dim=-1)
    probs = by_definition(name)
    five_sigma = 5.0 * (probs * (1.0 - probs) / num).sqrt()
    assert bool(((codes.bincount(minlength=27) / num - probs).abs() <= five_sigma + 1e-12).all())
    torch.testing.assert_close(sampled.log_probs, probs.log()[codes])


def test_a_list_is_intended_to_the_end_whatever_comes(generator: torch.Generator) -> None:
    walk = draw(OpenLoopPolicy(KEPT, 3), ENVIRONMENTS["slip"], 500, generator).walk
    assert {tuple(row) for row in walk.intentions.tolist()} == {tuple(row) for row in KEPT.tolist()}
    assert not torch.equal(walk.intentions, walk.outcomes)
    visits = OpenLoopPolicy(KEPT, 3).visits(walk, ENVIRONMENTS["slip"])
    assert torch.equal(visits.argmax(dim=-1), walk.intentions)
    torch.testing.assert_close(visits.sum(dim=-1), torch.full((500, 3), 1 / 1500, dtype=torch.float64))


def test_one_design_without_noise_has_a_finite_divergence() -> None:
    truth = SequenceTruth(ENVIRONMENTS["none"], REWARD)
    verdict = truth.evaluate(OpenLoopPolicy(torch.tensor([[2, 2, 2]]), 3))
    assert verdict["kl"] == pytest.approx(truth.attainable.log_z - 2.0 * math.log(7.0))
    assert verdict["mean_score"] == pytest.approx(7.0)


def test_a_list_of_long_sequences_can_be_drawn_and_weighed(generator: torch.Generator) -> None:
    task = Sums(40)
    assert not task.enumerable
    kept = torch.randint(3, (7, 40), generator=generator)
    sampled = draw(OpenLoopPolicy(kept, 3), SequenceEnvironment(task, CHANNELS["slip"]), 30, generator)
    matrix = CHANNELS["slip"].matrix(0)
    for outcomes, log_prob in zip(sampled.walk.outcomes, sampled.log_probs, strict=True):
        expected = (matrix[kept, outcomes].log().sum(dim=-1)).logsumexp(dim=0) - math.log(7)
        assert log_prob.item() == pytest.approx(expected.item())


def test_many_designs_are_weighed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = OpenLoopPolicy(KEPT, 3)
    whole = policy.log_probs(walk_to(WORDS), ENVIRONMENTS["slip"])
    monkeypatch.setattr("stochflow.sampling.policies._BLOCK", 10)
    torch.testing.assert_close(policy.log_probs(walk_to(WORDS), ENVIRONMENTS["slip"]), whole)


def test_the_policy_of_a_network_is_evaluated_by_its_exact_distribution(generator: torch.Generator) -> None:
    network = FlowNetwork(3, 3, (1, 2), 16, 1)
    network.initialise(generator)
    with torch.no_grad():
        network.policy_head.weight.normal_(generator=generator)
    environment, policy = ENVIRONMENTS["positional"], policy_of(network)
    assert isinstance(policy, NetworkPolicy)
    truth = SequenceTruth(environment, REWARD)
    log_probs = policy.terminal_log_probs(environment)
    torch.testing.assert_close(policy.log_probs(walk_to(WORDS), environment), log_probs, atol=1e-5, rtol=0)
    assert kl_to_target(log_probs, truth.log_rewards) == truth.evaluate(policy)["kl"]
    with torch.no_grad():
        log_policy = network.evaluate(AtPrefixes(WORDS)).heads().log_policy[:, :-1].double()
    torch.testing.assert_close(policy.visits(walk_to(WORDS), environment), log_policy.exp() / WORDS.numel())


def test_the_true_channel_is_at_the_floor_for_a_list_too(generator: torch.Generator) -> None:
    channel, environment, policy = CHANNELS["positional"], ENVIRONMENTS["positional"], OpenLoopPolicy(KEPT, 3)
    walk = draw(policy, environment, 400, generator).walk
    found = dynamics_metrics(policy, KnownDynamics(channel, 3).log_matrices(walk.outcomes).double(), environment, walk)
    assert found["dynamics_ce"] == pytest.approx(found["dynamics_ce_floor"], abs=1e-5)
    entropies = torch.gather(channel.entropies(), 1, walk.intentions.T).mean()
    assert found["dynamics_ce_floor"] == pytest.approx(entropies.item())
