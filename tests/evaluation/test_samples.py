"""What is said about a sampler agrees with what it does."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from stochflow.config.schema import EvaluationConfig
from stochflow.environments import channels
from stochflow.environments.channels import Channel
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.environments.sequences.task import Alphabet, Task
from stochflow.environments.sequences.tfbind8 import TFBind8
from stochflow.evaluation.samples import design_metrics, draw, dynamics_metrics, samples_frame
from stochflow.models.dynamics.tabular import DynamicsModel, KnownDynamics
from stochflow.models.evaluation import AtPrefixes
from stochflow.models.flow_network import FlowNetwork
from stochflow.sampling.policies import Policy, policy_of
from stochflow.truth.truth import SequenceTruth

REWARD = Reward(beta=3.0, floor=1e-6, ramp=0.0)
# five standard errors: one false alarm in two million
NUM_ERRORS = 5.0


class Words(Task):
    """All 81 words of length four over three letters; the score of a word is a fixed pseudo-random number."""

    name = "words"
    alphabet = Alphabet("XYZ")
    length = 4
    mode_threshold = 0.5
    description = "small enough to count"

    def score(self, tokens: Tensor) -> Tensor:
        codes = (tokens * torch.tensor([27, 9, 3, 1])).sum(dim=-1)
        return torch.rand(81, generator=torch.Generator().manual_seed(5), dtype=torch.float64)[codes]


# asymmetric: a transposed matrix or the wrong position would be noticed
SKEWED = torch.tensor([[0.8, 0.15, 0.05], [0.3, 0.6, 0.1], [0.0, 0.2, 0.8]], dtype=torch.float64)
CHANNELS = {
    "none": channels.noiseless(3),
    "slip": channels.uniform_slip(3, 0.4),
    "skewed": channels.confusion(SKEWED),
    "positional": channels.positional(
        torch.stack([torch.eye(3, dtype=torch.float64), SKEWED, SKEWED.flip(0, 1)] * 2)[:4]
    ),
}


def random_network(seed: int, num_tokens: int = 3, length: int = 4, spread: float = 1.0) -> FlowNetwork:
    """A network whose policy differs clearly from state to state."""
    generator = torch.Generator().manual_seed(seed)
    network = FlowNetwork(num_tokens, length, (1, 2), width=16, num_layers=1)
    network.initialise(generator)
    with torch.no_grad():
        network.policy_head.weight.normal_(std=spread, generator=generator)
    return network


def random_policy(seed: int) -> Policy:
    return policy_of(random_network(seed))


def words(name: str) -> SequenceEnvironment:
    """The words through a channel of `CHANNELS`."""
    return SequenceEnvironment(Words(), CHANNELS[name])


def exact_log_probs(network: FlowNetwork, task: Task, channel: Channel) -> Tensor:
    """log P(x) of all sequences by the definition, Π_t Σ_a π(a|x_<t)·P_t(x_t|a)."""
    sequences = task.all_sequences
    policies = network.evaluate(AtPrefixes(sequences)).heads().log_policy[:, :-1].detach().double().exp()
    total = torch.zeros(len(sequences), dtype=torch.float64)
    for position in range(task.length):
        marginals = policies[:, position] @ channel.matrix(position)
        total += marginals[torch.arange(len(sequences)), sequences[:, position]].log()
    return total


@pytest.mark.parametrize("name", CHANNELS)
def test_the_figures_follow_from_the_exact_distribution(name: str) -> None:
    task, channel, network = Words(), CHANNELS[name], random_network(0)
    log_probs = exact_log_probs(network, task, channel)
    assert float(log_probs.exp().sum()) == pytest.approx(1.0, abs=1e-6)
    log_target = torch.log_softmax(REWARD.log_reward(task.all_scores), dim=0)
    kl = float((log_probs.exp() * (log_probs - log_target)).sum())
    truth = SequenceTruth(words(name), REWARD)
    found = truth.evaluate(policy_of(network))
    assert found["kl"] == pytest.approx(kl, abs=1e-6)
    assert found["regret"] == pytest.approx(kl - truth.optimum()["min_kl"], abs=1e-6)
    assert found["tv"] == pytest.approx(float((log_probs.exp() - log_target.exp()).abs().sum() / 2), abs=1e-6)
    assert found["mean_score"] == pytest.approx(float(log_probs.exp() @ task.all_scores), abs=1e-6)


@pytest.mark.parametrize("name", CHANNELS)
def test_missing_entropy_is_counted_from_the_attainable_optimum(name: str) -> None:
    truth, policy = SequenceTruth(words(name), REWARD), random_policy(0)
    entropies = [-(log_probs.exp() @ log_probs) for log_probs in (truth.attainable.log_probs, truth.log_probs(policy))]
    assert truth.evaluate(policy)["entropy_gap"] == pytest.approx(float(entropies[0] - entropies[1]), abs=1e-6)


@pytest.mark.parametrize("name", CHANNELS)
def test_designs_come_as_often_as_their_probability_says(name: str, generator: torch.Generator) -> None:
    task, channel, network = Words(), CHANNELS[name], random_network(1)
    probabilities = exact_log_probs(network, task, channel).exp()
    num = 20_000
    sampled = draw(policy_of(network), words(name), num, generator)
    codes = (sampled.walk.outcomes * torch.tensor([27, 9, 3, 1])).sum(dim=-1)
    frequencies = codes.bincount(minlength=81).double() / num
    errors = (probabilities * (1 - probabilities) / num).sqrt()
    assert bool(((frequencies - probabilities).abs() <= NUM_ERRORS * errors + 1 / num).all())
    torch.testing.assert_close(sampled.log_probs.exp(), probabilities[codes], rtol=1e-5, atol=0)
    assert torch.equal(sampled.scores, task.all_scores[codes])


def test_the_sampled_mean_score_agrees_with_the_exact_one_on_tfbind8(
    tfbind8: TFBind8, generator: torch.Generator
) -> None:
    environment = SequenceEnvironment(tfbind8, channels.uniform_slip(4, 0.25))
    network = random_network(2, num_tokens=4, length=8)
    num = 4000
    scores = draw(policy_of(network), environment, num, generator).scores
    expected = SequenceTruth(environment, REWARD).evaluate(policy_of(network))["mean_score"]
    assert abs(float(scores.mean()) - expected) <= NUM_ERRORS * float(scores.std()) / math.sqrt(num)


def test_the_channel_is_applied_to_what_was_intended(generator: torch.Generator) -> None:
    walk = draw(random_policy(3), words("slip"), 20_000, generator).walk
    kept = (walk.intentions == walk.outcomes).double().mean()
    expected = 1 - 0.4 * 2 / 3
    assert abs(float(kept) - expected) <= NUM_ERRORS * math.sqrt(expected * (1 - expected) / walk.outcomes.numel())
    walk = draw(random_policy(3), words("none"), 50, generator).walk
    assert torch.equal(walk.intentions, walk.outcomes)


def test_the_same_generator_gives_the_same_designs() -> None:
    def outcomes(seed: int) -> Tensor:
        return draw(random_policy(4), words("slip"), 50, torch.Generator().manual_seed(seed)).walk.outcomes

    assert torch.equal(outcomes(1), outcomes(1))
    assert not torch.equal(outcomes(1), outcomes(2))


@given(
    seed=st.integers(0, 2**31),
    alpha=st.floats(0.0, 0.99),
    beta=st.floats(0.1, 10.0),
    spread=st.floats(0.0, 10.0),
)
def test_no_network_beats_the_attainable_optimum(seed: int, alpha: float, beta: float, spread: float) -> None:
    environment = SequenceEnvironment(Words(), channels.uniform_slip(3, alpha))
    truth = SequenceTruth(environment, Reward(beta=beta, floor=1e-6, ramp=0.0))
    found = truth.evaluate(policy_of(random_network(seed, spread=spread)))
    assert found["regret"] >= -1e-9
    assert 0.0 <= found["tv"] <= 1.0
    assert found["kl"] >= 0.0


@pytest.mark.parametrize("name", ["skewed", "positional"])
def test_no_network_beats_the_optimum_of_a_general_channel(name: str) -> None:
    truth = SequenceTruth(words(name), REWARD)
    assert all(truth.evaluate(random_policy(seed))["regret"] >= -1e-6 for seed in range(20))


def test_a_uniform_policy_has_no_regret_on_a_uniform_target() -> None:
    uniform = random_network(0, spread=0.0)
    flat = Reward(beta=1.0, floor=100.0, ramp=0.0)  # every score is below the floor
    for name in ("none", "slip"):
        found = SequenceTruth(words(name), flat).evaluate(policy_of(uniform))
        assert found["regret"] == pytest.approx(0.0, abs=1e-6)
        assert found["tv"] == pytest.approx(0.0, abs=1e-6)


def test_without_noise_the_target_itself_can_be_reached() -> None:
    optimum = SequenceTruth(words("none"), REWARD).optimum()
    target = torch.softmax(REWARD.log_reward(Words().all_scores), dim=0)
    assert optimum["min_kl"] == pytest.approx(0.0, abs=1e-9)
    assert optimum["min_tv"] == pytest.approx(0.0, abs=1e-9)
    assert optimum["attainable_score"] == pytest.approx(float(target @ Words().all_scores), abs=1e-9)
    assert optimum["log_z_true"] == pytest.approx(float(REWARD.log_reward(Words().all_scores).exp().sum().log()))


@pytest.mark.parametrize("name", CHANNELS)
@pytest.mark.parametrize("depends_on", ["intention", "position", "state"])
def test_the_dynamics_error_is_never_below_its_floor(name: str, depends_on: str, generator: torch.Generator) -> None:
    policy, environment = random_policy(5), words(name)
    model = DynamicsModel(3, 4, depends_on)  # type: ignore[arg-type]
    model.initialise(generator)
    walk = draw(policy, environment, 200, generator).walk
    untrained = dynamics_metrics(policy, model.log_matrices(walk.outcomes).detach().double(), environment, walk)
    assert untrained["dynamics_ce"] == pytest.approx(math.log(3), abs=1e-6)  # P̂ starts uniform
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator)
    scattered = dynamics_metrics(policy, model.log_matrices(walk.outcomes).detach().double(), environment, walk)
    assert scattered["dynamics_ce"] > scattered["dynamics_ce_floor"] == untrained["dynamics_ce_floor"]


def test_the_dynamics_error_is_averaged_over_visited_states_and_the_intentions_there(
    generator: torch.Generator,
) -> None:
    network, environment = random_network(11), words("positional")
    model = DynamicsModel(3, 4, "state")
    model.initialise(generator)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator)
    walk = draw(policy_of(network), environment, 5, generator).walk
    terms = []
    for word in walk.outcomes:
        for position in range(4):
            prefix, depth = word.unsqueeze(0), torch.tensor([position])
            policy = network.evaluate(AtPrefixes(prefix, depth)).heads().log_policy[0].detach().double().exp()
            log_learned = model.log_matrices_at(prefix, depth)[0].detach().double()
            terms.append(float(-(policy @ (environment.channel.matrix(position) * log_learned).sum(dim=-1))))
    found = dynamics_metrics(policy_of(network), model.log_matrices(walk.outcomes).detach().double(), environment, walk)
    assert found["dynamics_ce"] == pytest.approx(sum(terms) / len(terms), abs=1e-5)


@pytest.mark.parametrize("name", CHANNELS)
def test_the_known_dynamics_are_at_their_floor(name: str, generator: torch.Generator) -> None:
    policy, environment = random_policy(6), words(name)
    walk = draw(policy, environment, 200, generator).walk
    known = KnownDynamics(environment.channel, 4)
    found = dynamics_metrics(policy, known.log_matrices(walk.outcomes).detach().double(), environment, walk)
    assert found["dynamics_ce"] == pytest.approx(found["dynamics_ce_floor"], abs=1e-6)


def test_the_floor_of_a_slip_is_its_entropy(generator: torch.Generator) -> None:
    policy, environment = random_policy(7), words("slip")
    walk = draw(policy, environment, 50, generator).walk
    stays, moves = 0.6 + 0.4 / 3, 0.4 / 3
    entropy = -stays * math.log(stays) - 2 * moves * math.log(moves)
    found = dynamics_metrics(policy, None, environment, walk)
    assert found["dynamics_ce"] is None
    assert found["dynamics_ce_floor"] == pytest.approx(entropy, abs=1e-6)


def test_design_metrics_use_the_threshold_of_the_task_or_of_the_settings(generator: torch.Generator) -> None:
    environment = words("slip")
    sampled = draw(random_policy(8), environment, 300, generator)
    config = EvaluationConfig(mode_distance=0)
    found = design_metrics(sampled, environment, config, None)
    distinct = {
        tuple(word): float(score) for word, score in zip(sampled.walk.outcomes.tolist(), sampled.scores, strict=True)
    }
    best = sorted(distinct.values(), reverse=True)[:100]
    assert found["num_modes"] == sum(score > Words.mode_threshold for score in distinct.values())
    assert found["unique_fraction"] == pytest.approx(len(distinct) / 300)
    assert found["top100_mean"] == pytest.approx(sum(best) / len(best))
    assert found["novelty"] is None
    low = config.model_copy(update={"mode_threshold": -1.0})
    assert design_metrics(sampled, environment, low, None)["num_modes"] == len(distinct)


def test_designs_are_not_novel_to_themselves(generator: torch.Generator) -> None:
    environment = words("slip")
    sampled = draw(random_policy(9), environment, 100, generator)
    tokens = sampled.walk.outcomes
    config = EvaluationConfig()
    assert design_metrics(sampled, environment, config, tokens)["novelty"] == 0.0
    assert design_metrics(sampled, environment, config, tokens[:1])["novelty"] == pytest.approx(
        float((tokens != tokens[0]).sum(dim=-1).double().mean())
    )


def test_the_table_of_designs_spells_out_what_was_drawn(generator: torch.Generator) -> None:
    task = Words()
    sampled = draw(random_policy(10), words("slip"), 20, generator)
    frame = samples_frame(sampled, words("slip"), REWARD)
    assert list(frame.columns) == ["sequence", "intended", "score", "log_reward", "log_prob"]
    assert torch.equal(task.alphabet.encode(frame["sequence"].tolist()), sampled.walk.outcomes)
    assert torch.equal(task.alphabet.encode(frame["intended"].tolist()), sampled.walk.intentions)
    log_rewards = [max(3 * math.log(score), math.log(1e-6)) for score in frame["score"]]
    assert frame["log_reward"].tolist() == pytest.approx(log_rewards, abs=1e-12)
    assert frame["log_prob"].tolist() == sampled.log_probs.tolist()
