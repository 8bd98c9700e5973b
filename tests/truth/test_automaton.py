"""The truth by an automaton: that of the whole tree, in a space where both can be computed, and of draws in others."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from stochflow.config.environment import ConstraintConfig
from stochflow.core.logspace import safe_log
from stochflow.environments.channels import Channel, confusion, noiseless, positional_slip, uniform_slip
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.constraints import ConstrainedTask
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.environments.sequences.motifs import Motif, MotifTask
from stochflow.environments.sequences.reward_noise import with_noise
from stochflow.environments.sequences.score_automaton import ScoreAutomaton
from stochflow.environments.sequences.task import Alphabet, Task
from stochflow.truth.automaton import AutomatonOptimum, automaton_optimum, automaton_reward
from stochflow.truth.prefix_tree import attainable_optimum, entropy
from stochflow.truth.truth import AutomatonTruth, SequenceTruth, truth_of

LENGTH = 5
TIGHT = 1e-10  # of iterations, so that what they leave open is not what is compared
CHANNELS = {
    "none": noiseless(4),
    "slip": uniform_slip(4, 0.3),
    "confusion": confusion(torch.full((4, 4), 0.05) + torch.diag(torch.full((4,), 0.8))),
    "asymmetric": confusion([[0.7, 0.3, 0, 0], [0.1, 0.8, 0.1, 0], [0.0, 0.2, 0.7, 0.1], [0.2, 0, 0.1, 0.7]]),
    "per position": positional_slip(4, [0.0, 0.1, 0.4, 0.2, 0.6]),
}
REWARDS = {name: Reward(8.0, floor, 0.0) for name, floor in {"motifs": 1e-9, "floor": 0.01, "products": 1e-40}.items()}


class Markov(Task):
    """Sequences over ACGT whose score is a product of factors of adjacent letters."""

    name, alphabet, mode_threshold, description = "markov", Alphabet("ACGT"), 0.5, "products of transitions"

    def __init__(self, length: int) -> None:
        self.length = length
        factors = torch.randn(5, 4, generator=torch.Generator().manual_seed(2)).double() * 0.4
        after = torch.arange(1, 5).expand(5, 4)
        self.automaton = ScoreAutomaton(after, torch.tensor([1.0, 0.5, 0.8, 1.0, 0.2]).double(), factors)

    def score(self, tokens: Tensor) -> Tensor:
        return self.automaton.score(tokens)


def promoters(length: int) -> MotifTask:
    generator = np.random.default_rng(3)
    motifs = [Motif(str(width), generator.dirichlet(np.full(4, 0.15), size=width)) for width in (3, 4)]
    return MotifTask("own", motifs, length)


def solved(task: Task, reward: Reward, channel: Channel) -> AutomatonOptimum:
    assert task.automaton is not None
    rewards = automaton_reward(task.automaton, reward, task.length)
    assert rewards is not None
    return automaton_optimum(rewards, channel, task.length, TIGHT)


@pytest.mark.parametrize("channel", CHANNELS.values(), ids=CHANNELS)
@pytest.mark.parametrize(
    ("task", "reward"),
    [
        (promoters(LENGTH), REWARDS["motifs"]),
        (promoters(LENGTH), REWARDS["floor"]),
        (Markov(LENGTH), REWARDS["products"]),
    ],
    ids=["motifs", "motifs at the floor", "products"],
)
def test_the_automaton_says_what_the_whole_tree_says(task: Task, reward: Reward, channel: Channel) -> None:
    log_rewards = reward.log_reward(task.all_scores)
    tree = attainable_optimum(log_rewards, channel, LENGTH, tolerance=TIGHT)
    found = solved(task, reward, channel)
    assert task.automaton is not None
    score = found.expected(task.automaton.scores, task.automaton.log_factors)
    assert found.log_z == pytest.approx(tree.log_z, abs=1e-9)
    assert found.min_kl == pytest.approx(tree.min_kl, abs=1e-8)
    assert score == pytest.approx(float(tree.log_probs.exp() @ task.all_scores), abs=1e-6)
    assert found.entropy == pytest.approx(entropy(tree.log_probs), abs=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_the_policy_is_that_of_the_tree_at_every_prefix(alpha: float) -> None:
    task, channel = promoters(LENGTH), uniform_slip(4, alpha)
    tree = attainable_optimum(REWARDS["motifs"].log_reward(task.all_scores), channel, LENGTH)
    found = solved(task, REWARDS["motifs"], channel)
    for depth in range(LENGTH):
        prefixes = task.all_sequences[:: 4 ** (LENGTH - depth), :depth]
        states = torch.zeros(len(prefixes), dtype=torch.int64)
        for letters in prefixes.unbind(dim=1):
            states = task.automaton.transitions[states, letters]
        torch.testing.assert_close(found.policy(depth, states), tree.policies[depth], rtol=0, atol=1e-9)


@pytest.mark.parametrize("channel", [uniform_slip(4, 0.2), CHANNELS["asymmetric"]], ids=["slip", "asymmetric"])
def test_draws_have_the_expected_score_and_j_where_nothing_can_be_enumerated(channel: Channel) -> None:
    task, reward = promoters(length=12), REWARDS["motifs"]
    truth = truth_of(SequenceEnvironment(task, channel), reward)
    assert isinstance(truth, AutomatonTruth)
    assert not truth.exact_evaluation
    drawn = truth.attainable.draw(4000, torch.Generator().manual_seed(0))
    scores = task.score(drawn.outcomes)
    values = reward.log_reward(scores) - drawn.log_probs
    for sample, exact in ((scores, truth.optimum()["attainable_score"]), (values, truth.attainable.value)):
        assert float(sample.mean()) == pytest.approx(exact, abs=4 * float(sample.std()) / math.sqrt(len(sample)))
    error = float(values.std()) / math.sqrt(len(values))
    estimated = truth.estimated(float(values.mean()), error)
    assert estimated["regret"] == pytest.approx(0.0, abs=4 * error)  # of the policy that no other surpasses
    surprise = -drawn.log_probs
    error = float(surprise.std()) / math.sqrt(len(surprise))
    assert float(surprise.mean()) == pytest.approx(truth.attainable_entropy, abs=4 * error)


def test_probabilities_of_draws_are_those_of_intentions_through_the_channel() -> None:
    task, channel = promoters(LENGTH), CHANNELS["asymmetric"]
    found = solved(task, REWARDS["motifs"], channel)
    drawn = found.draw(50, torch.Generator().manual_seed(1))
    tree = attainable_optimum(REWARDS["motifs"].log_reward(task.all_scores), channel, LENGTH, tolerance=TIGHT)
    codes = (drawn.outcomes * 4 ** torch.arange(LENGTH - 1, -1, -1)).sum(dim=-1)
    torch.testing.assert_close(drawn.log_probs, tree.log_probs[codes], rtol=0, atol=1e-5)
    possible = safe_log(channel.matrix(0))[drawn.intentions, drawn.outcomes]
    assert float(possible.min()) > math.log(1e-20)


def test_nothing_beats_the_target_and_noise_costs_something() -> None:
    task = promoters(length=30)
    noise = {alpha: solved(task, REWARDS["motifs"], uniform_slip(4, alpha)) for alpha in (0.0, 0.1, 0.4)}
    assert noise[0.0].min_kl == pytest.approx(0.0, abs=1e-9)
    assert 0.0 < noise[0.1].min_kl < noise[0.4].min_kl
    assert len({round(found.log_z, 9) for found in noise.values()}) == 1


def test_what_can_be_enumerated_is_and_what_only_a_plain_task_knows_is_refused() -> None:
    reward, channel, long = REWARDS["motifs"], uniform_slip(4, 0.1), promoters(length=12)
    assert isinstance(truth_of(SequenceEnvironment(promoters(LENGTH), channel), reward), SequenceTruth)
    assert isinstance(truth_of(SequenceEnvironment(long, channel), reward), AutomatonTruth)
    constrained = ConstrainedTask(long, ConstraintConfig(forbid=["AAAA"]))
    for other in (constrained, with_noise(long, "gaussian:0.1")):
        assert truth_of(SequenceEnvironment(other, channel), reward) is None


def test_a_floor_that_cuts_a_sum_of_factors_makes_it_no_sum() -> None:
    task, channel = Markov(length=12), noiseless(4)
    lowest = 2.0 * task.automaton.lowest(12)
    above, below = (Reward(2.0, math.exp(lowest + shift), 0.0) for shift in (0.01, -0.01))
    assert truth_of(SequenceEnvironment(task, channel), above) is None
    assert isinstance(truth_of(SequenceEnvironment(task, channel), below), AutomatonTruth)


def test_lists_of_everything_are_refused() -> None:
    truth = truth_of(SequenceEnvironment(promoters(length=12), noiseless(4)), REWARDS["motifs"])
    assert truth is not None
    for name in ("scores", "log_rewards"):
        with pytest.raises(TypeError, match="too many sequences"):
            getattr(truth, name)
    with pytest.raises(TypeError, match="too many sequences"):
        _ = truth.attainable.log_probs
    with pytest.raises(TypeError, match="too many sequences"):
        truth.evaluate(None)
