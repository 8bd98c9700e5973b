"""Pre-training on planned tasks, renamed letters, and a policy that is evaluated on all tasks at once."""

import pytest
import torch

from stochflow.core.errors import ConfigError
from stochflow.environments.channels import uniform_slip
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.environments.sequences.multi_task import MultiTaskEnvironment
from stochflow.experiments.experiment import Experiment
from stochflow.sampling.policies import policy_of
from stochflow.sampling.rollout import rollout
from stochflow.training.conditional import ConditionalKL, draw_support
from stochflow.training.conditional.pretraining import (
    PlannedTasks,
    conditional_terms,
    draw_batch,
    draw_plan_states,
    relabel,
)
from stochflow.truth.prefix_tree import attainable_optimum
from stochflow.truth.truth import truth_of
from tests.training.conditional.favourites import Favourite, pretraining

CHANNEL = uniform_slip(3, 0.2)
REWARD = Reward(beta=2.0, floor=1e-6, ramp=0.0)


@pytest.fixture(scope="module")
def planned() -> PlannedTasks:
    return PlannedTasks(MultiTaskEnvironment([Favourite(0), Favourite(1)], CHANNEL), REWARD)


def objective_of(experiment: Experiment) -> ConditionalKL:
    objective = experiment.trainer.objective
    assert isinstance(objective, ConditionalKL)
    return objective


def regret(experiment: Experiment, letter: int, support_of: int, generator: torch.Generator) -> float:
    network = objective_of(experiment).conditional.given(draw_support(Favourite(support_of), 24, generator))
    truth = truth_of(SequenceEnvironment(Favourite(letter), CHANNEL), REWARD)
    assert truth is not None
    return truth.evaluate(policy_of(network))["regret"]


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
    expected = PlannedTasks(MultiTaskEnvironment([task], CHANNEL), REWARD).plans[0]
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
    experiment = pretraining()
    settings = experiment.config.pretraining
    batch = draw_batch(planned, settings, generator)
    with torch.no_grad():
        sampler = objective_of(experiment).conditional
        terms = conditional_terms(sampler, batch, CHANNEL.log_matrices(4).float(), flow_weight=0.5)
    log_targets = torch.log_softmax(batch.states.child_values, dim=-1)
    log_uniform = torch.tensor(1 / 3, dtype=torch.float64).log()
    expected = (batch.states.weights * (log_uniform - log_targets).mean(dim=-1)).sum() / settings.tasks_per_step
    assert float(terms["kl_loss"]) == pytest.approx(float(expected), rel=1e-4)
    assert float(terms["loss"]) == pytest.approx(float(terms["kl_loss"] + 0.5 * terms["flow_loss"]), rel=1e-5)


def test_one_sampler_serves_both_tasks_by_their_supports(pretrained: Experiment, generator: torch.Generator) -> None:
    for letter, other in ((0, 1), (1, 0)):
        right = regret(pretrained, letter, letter, generator)
        wrong = regret(pretrained, letter, other, generator)
        assert right < 0.05
        assert wrong > right + 0.3


def test_a_task_that_was_never_trained_on_is_served_by_its_support(
    pretrained: Experiment, generator: torch.Generator
) -> None:
    assert regret(pretrained, 2, 2, generator) < 0.05


def test_figures_of_a_pretraining_run_are_means_over_its_tasks(pretrained: Experiment) -> None:
    objective, found = objective_of(pretrained), pretrained.evaluate()
    networks = [
        objective.conditional.given(support) for support in map(type(objective._supports), *objective._supports)
    ]
    truths = [truth_of(SequenceEnvironment(Favourite(letter), CHANNEL), REWARD) for letter in range(2)]
    means = [truth.evaluate(policy_of(network)) for truth, network in zip(truths, networks, strict=True) if truth]
    for name, value in found.items():
        assert value == pytest.approx(sum(mean[name] for mean in means) / 2, abs=1e-6), name
    assert found["regret"] < 0.05
    # log F of the root is V(root) = log Z − min KL, on average
    assert pretrained.truth is not None
    best = pretrained.truth.optimum()
    assert objective.log_z() == pytest.approx(best["log_z_true"] - best["min_kl"], abs=0.1)


def test_what_is_drawn_has_the_probability_that_the_sweep_gives_it(
    pretrained: Experiment, generator: torch.Generator
) -> None:
    environment, policy = pretrained.environment, pretrained.policy
    streams = {"policy": generator, "channel": generator}
    walk = rollout(environment, policy.sampler(4000, generator), 4000, streams)
    made = environment.made(walk.outcomes, walk.valid)
    codes = (made * torch.tensor([81, 27, 9, 3, 1])).sum(dim=-1)
    log_probs = policy.terminal_log_probs(environment)
    assert float(log_probs.exp().sum()) == pytest.approx(1.0)
    torch.testing.assert_close(policy.log_probs(walk, environment), log_probs[codes], atol=1e-4, rtol=0)
    counts = torch.bincount(codes, minlength=len(log_probs)) / 4000
    # each count is within four standard deviations of its expectation
    error = 4.0 * (log_probs.exp() / 4000).sqrt() + 1e-3
    assert bool(((counts - log_probs.exp()).abs() < error).all())


def test_nothing_is_sampled_and_no_oracle_is_asked() -> None:
    trainer = pretraining({"budget": {"steps": 2}}).trainer
    record = trainer.train_step()
    assert (record["step"], record["trajectories"], record["oracle_calls"]) == (1, 0, 0)
    assert "batch_score" not in record
    assert trainer.progress == 0.5


def test_the_same_seed_trains_the_same_sampler() -> None:
    losses = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        trainer = pretraining({"budget": {"steps": 3}}).trainer
        losses.append([trainer.train_step()["loss"] for _ in range(3)])
    assert losses[0] == losses[1]


def test_letters_are_renamed_only_where_the_channel_treats_them_alike() -> None:
    positional = {"channel": {"kind": "positional", "noise": [0.1, 0.2, 0.3, 0.1]}}
    with pytest.raises(ConfigError, match=r"only under uniform slip, .*; set pretraining\.relabelled to 0"):
        pretraining(positional)
    pretraining(positional, {"pretraining": {"relabelled": 0.0}})


def test_a_support_larger_than_the_space_is_refused_before_anything_is_trained() -> None:
    with pytest.raises(ConfigError, match="support of 82 sequences cannot be drawn"):
        pretraining({"pretraining": {"support_size": 82}})
