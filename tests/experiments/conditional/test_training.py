"""Pre-training on planned tasks, renamed letters, and fine-tuning from a support."""

import pytest
import torch
from torch import Tensor

from stochflow.config.schema import Config
from stochflow.core.errors import ConfigError
from stochflow.environments.channels import dna_synthesis, uniform_slip
from stochflow.environments.registry import TASKS
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.environments.sequences.task import Alphabet, Task
from stochflow.experiments.conditional import (
    ConditionalSampler,
    ConditionalSettings,
    PlannedTasks,
    draw_support,
    fine_tuning,
    train_conditional,
)
from stochflow.experiments.conditional.training import conditional_terms, draw_batch, draw_plan_states, relabel
from stochflow.experiments.launch import resolve_config
from stochflow.sampling.policies import policy_of
from stochflow.truth.prefix_tree import attainable_optimum
from stochflow.truth.truth import SequenceTruth

CHANNEL = uniform_slip(3, 0.2)
REWARD = Reward(beta=2.0, floor=1e-6, ramp=0.0)
SETTINGS = ConditionalSettings(
    support_size=24, context_width=16, kmers=(1, 2), width=32, num_layers=1, steps=250, rows_per_level=27
)


class Favourite(Task):
    """Words score by how often one letter comes, early places counting more."""

    description, alphabet, length, mode_threshold = "a test task", Alphabet("ABC"), 4, 0.9

    def __init__(self, letter: int, renamed: Tensor | None = None) -> None:
        self.name = f"favourite-{letter}"
        self._letter = letter if renamed is None else int(renamed[letter])

    def score(self, tokens: Tensor) -> Tensor:
        places = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
        return 0.05 + 0.95 * ((tokens == self._letter) * places).sum(dim=-1)


@pytest.fixture(scope="module")
def planned() -> PlannedTasks:
    return PlannedTasks([Favourite(0), Favourite(1)], CHANNEL, REWARD)


@pytest.fixture(scope="module")
def trained(planned: PlannedTasks) -> ConditionalSampler:
    generator = torch.Generator().manual_seed(0)
    sampler = ConditionalSampler(3, 4, SETTINGS)
    sampler.initialise(generator)
    train_conditional(sampler, planned, SETTINGS, generator)
    return sampler


def regret(sampler: ConditionalSampler, task: Task, support_of: Task, generator: torch.Generator) -> float:
    network = sampler.given(draw_support(support_of, SETTINGS.support_size, generator))
    return SequenceTruth(SequenceEnvironment(task, CHANNEL), REWARD).evaluate(policy_of(network))["regret"]


def test_the_plan_of_a_whole_tree_is_the_attainable_optimum(planned: PlannedTasks) -> None:
    for task, plan in zip(planned.tasks, planned.plans, strict=True):
        best = attainable_optimum(REWARD.log_reward(task.all_scores), CHANNEL, task.length)
        assert float(plan.values[0]) == pytest.approx(best.value, abs=1e-3)
        for level, exact in zip(plan.policies, best.policies, strict=True):
            torch.testing.assert_close(level, exact, atol=0.02, rtol=0)


def test_weights_of_one_task_sum_to_one_with_equal_depths(planned: PlannedTasks, generator: torch.Generator) -> None:
    states = draw_plan_states(planned.trie, planned.plans[0], 10, generator)
    for depth in range(4):
        assert float(states.weights[states.depths == depth].sum()) == pytest.approx(0.25)


def test_renaming_letters_gives_the_plan_of_the_renamed_task(planned: PlannedTasks, generator: torch.Generator) -> None:
    letters = torch.tensor([2, 0, 1])
    task = Favourite(0, renamed=letters)
    expected = PlannedTasks([task], CHANNEL, REWARD).plans[0]
    support, states = relabel(
        draw_support(planned.tasks[0], 20, generator),
        draw_plan_states(planned.trie, planned.plans[0], 30, generator),
        letters,
    )
    assert torch.equal(support.scores, task.score(support.tokens))
    for row in range(len(states.depths)):
        depth = int(states.depths[row])
        node = planned.trie.find(states.tokens[row : row + 1, :depth])[0]
        torch.testing.assert_close(states.child_values[row], expected.child_values[depth][node])
        torch.testing.assert_close(states.values[row], expected.values[depth][node])


def test_the_loss_of_an_untrained_sampler_is_the_divergence_of_the_uniform_policy(
    planned: PlannedTasks, generator: torch.Generator
) -> None:
    sampler = ConditionalSampler(3, 4, SETTINGS)
    sampler.initialise(generator)
    batch = draw_batch(planned, SETTINGS, generator)
    with torch.no_grad():
        terms = conditional_terms(sampler, batch, CHANNEL.log_matrices(4).float(), flow_weight=0.5)
    log_targets = torch.log_softmax(batch.states.child_values, dim=-1)
    log_uniform = torch.tensor(1 / 3, dtype=torch.float64).log()
    expected = (batch.states.weights * (log_uniform - log_targets).mean(dim=-1)).sum() / SETTINGS.tasks_per_step
    assert float(terms["kl_loss"]) == pytest.approx(float(expected), rel=1e-4)
    assert float(terms["loss"]) == pytest.approx(float(terms["kl_loss"] + 0.5 * terms["flow_loss"]), rel=1e-5)


def test_one_sampler_serves_both_tasks_by_their_supports(
    trained: ConditionalSampler, planned: PlannedTasks, generator: torch.Generator
) -> None:
    first, second = planned.tasks
    for task, other in ((first, second), (second, first)):
        right, wrong = regret(trained, task, task, generator), regret(trained, task, other, generator)
        assert right < 0.05
        assert wrong > right + 0.3


def test_a_task_that_was_never_trained_on_is_served_by_its_support(
    trained: ConditionalSampler, generator: torch.Generator
) -> None:
    assert regret(trained, Favourite(2), Favourite(2), generator) < 0.05


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> Config:
    """A short run on a task that was not trained on."""
    monkeypatch.setitem(TASKS, "favourite-2", lambda: Favourite(2))
    return resolve_config(
        [
            {
                "task": "favourite-2",
                "channel": {"noise": 0.2},
                "reward": {"beta": 2.0},
                "dynamics": {"kind": "known"},
                "optimiser": {"batch_size": 16, "updates": 8},
                "budget": {"trajectories": 64},
            }
        ]
    )


def test_fine_tuning_starts_from_the_sampler_with_the_support_paid_for(
    trained: ConditionalSampler, config: Config, generator: torch.Generator
) -> None:
    support = draw_support(Favourite(2), 24, generator)
    experiment = fine_tuning(trained, support, config)
    assert torch.equal(experiment.trainer.learner.memory.lookup(support.tokens), support.scores)
    expected = SequenceTruth(SequenceEnvironment(Favourite(2), CHANNEL), REWARD).evaluate(
        policy_of(trained.given(support))
    )
    assert experiment.evaluate() == expected


def test_fine_tuning_lowers_regret_and_leaves_the_sampler_as_it_was(config: Config, generator: torch.Generator) -> None:
    sampler = ConditionalSampler(3, 4, SETTINGS)
    sampler.initialise(generator)
    before = {name: value.clone() for name, value in sampler.state_dict().items()}
    experiment = fine_tuning(sampler, draw_support(Favourite(2), 24, generator), config)
    start = experiment.evaluate()["regret"]
    while not experiment.trainer.finished:
        experiment.trainer.train_step()
    assert experiment.evaluate()["regret"] < 0.5 * start
    assert all(torch.equal(before[name], value) for name, value in sampler.state_dict().items())


def test_the_same_seed_trains_the_same_sampler(planned: PlannedTasks) -> None:
    losses = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        generator = torch.Generator().manual_seed(0)
        settings = ConditionalSettings(support_size=5, context_width=8, kmers=(1,), width=8, steps=3)
        sampler = ConditionalSampler(3, 4, settings)
        sampler.initialise(generator)
        losses.append(train_conditional(sampler, planned, settings, generator))
    assert losses[0] == losses[1]


def test_letters_are_renamed_only_where_the_channel_treats_them_alike() -> None:
    class Words(Favourite):
        alphabet = Alphabet("ACGT")

    planned = PlannedTasks([Words(0)], dna_synthesis(0.1), REWARD)
    sampler = ConditionalSampler(4, 4, SETTINGS)
    with pytest.raises(ConfigError, match=r"only under uniform slip, .*; set relabelled to 0"):
        train_conditional(sampler, planned, SETTINGS, torch.Generator())


def test_tasks_that_share_no_space_are_refused() -> None:
    class Longer(Favourite):
        length = 5

    with pytest.raises(ConfigError, match="one alphabet and length"):
        PlannedTasks([Favourite(0), Longer(1)], CHANNEL, REWARD)
