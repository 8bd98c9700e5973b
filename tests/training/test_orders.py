"""Training without feedback: orders of whole strings are learned, resumed exactly, and refused where they cannot be."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from stochflow.config.methods import METHODS
from stochflow.core.errors import ConfigError
from stochflow.environments.channels import uniform_slip
from stochflow.experiments.build import build
from stochflow.experiments.experiment import Experiment
from stochflow.experiments.launch import resolve_config
from stochflow.experiments.torch_settings import computing
from stochflow.truth.orders import ordered_log_probs
from stochflow.truth.prefix_tree import kl_to_target
from tests.small_tasks import scored_environment

LENGTH = 4
SMALL: dict[str, Any] = {
    "task": "tfbind8",
    "feedback": "none",
    "model": {"width": 16, "num_layers": 1},
    "evaluation": {"num_samples": 20},
}
SCORES = torch.rand(3**LENGTH, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def ordering(method: str, trajectories: int = 2048, slip: float = 0.3, **settings: Any) -> Experiment:
    """A run of orders of four letters of three kinds."""
    config = resolve_config([SMALL, {"method": method, "budget": {"trajectories": trajectories}}, settings])
    return build(config, scored_environment(uniform_slip(3, slip), LENGTH, SCORES, feedback="none"))


def test_sgfn_kl_learns_the_best_orders() -> None:
    experiment = ordering("sgfn-kl", 4096, optimiser={"batch_size": 128, "updates": 24})
    before = experiment.evaluate()["regret"]
    after = experiment.train().evaluate()
    assert before > 0.1
    assert after["regret"] < 0.01
    assert experiment.truth is not None
    # which ordering R/Z itself does not come near
    truth, channel = experiment.truth, uniform_slip(3, 0.3)
    ignoring = ordered_log_probs(torch.log_softmax(truth.log_rewards, dim=0), channel, LENGTH)
    assert kl_to_target(ignoring, truth.log_rewards) - truth.attainable.min_kl > 0.03
    assert experiment.trainer.objective.log_z() == pytest.approx(
        truth.attainable.log_z - truth.attainable.min_kl, abs=0.05
    )


def test_trajectory_balance_learns_the_geometric_mean_of_what_comes() -> None:
    experiment = ordering(
        "gfn-tb", 16_384, exploration={"epsilon": 0.3}, optimiser={"batch_size": 256, "learning_rate": 0.01}
    )
    experiment.train()
    environment = experiment.environment
    truth = experiment.truth
    assert truth is not None
    matrix = uniform_slip(3, 0.3).matrix(0)
    dense = torch.ones(1, 1, dtype=torch.float64)
    for _ in range(LENGTH):
        dense = torch.kron(dense, matrix)
    expected = torch.log_softmax(dense @ truth.log_rewards, dim=0)
    log_orders = experiment.policy.terminal_log_probs(environment.without_noise)  # type: ignore[attr-defined]
    divergence = float((log_orders.exp() * (log_orders - expected)).sum())
    uniform = float(-expected.mean() - LENGTH * torch.tensor(3.0).log())
    assert divergence < 0.15 * uniform


def check_resumed(make: Callable[[], Experiment]) -> Experiment:
    """Train to the end, and again from a checkpoint of the second step; the first of the two runs."""
    whole, first, second = (make() for _ in range(3))
    whole.train()
    with computing(first.config):
        for _ in range(2):
            first.trainer.train_step()
    state = {name: value.clone() for name, value in first.trainer.state_dict().items()}
    second.trainer.load_state_dict(state)
    ended, again = (experiment.train().trainer.state_dict() for experiment in (whole, second))
    assert set(ended) == set(again)
    for name in set(ended) - {"counters"}:  # which hold seconds
        torch.testing.assert_close(again[name], ended[name], rtol=0, atol=0, msg=name)
    return whole


@pytest.mark.parametrize("method", ["sgfn-kl", "gfn-tb", "gfn-ls", "gfn-delta-cs", "mcmc", "mars", "genetic"])
def test_a_resumed_run_goes_on_exactly(method: str) -> None:
    check_resumed(lambda: ordering(method, 256, optimiser={"batch_size": 64, "updates": 2}))


def test_long_orders_are_learned_from_a_surrogate_and_resumed_exactly() -> None:
    settings = {
        "task": "motifs:MAX,12",
        "channel": {"noise": 0.1},
        "budget": {"trajectories": 192},
        "optimiser": {"batch_size": 64},
        "imagination": {"updates": 4, "num_chains": 16, "num_repairs": 8, "moves": 8, "rows": 32},
    }
    whole = check_resumed(lambda: build(resolve_config([SMALL, settings])))
    assert "objective.imagined.draws" in whole.trainer.state_dict()
    summary, frame = whole.conclude()
    assert (summary.feedback, summary.min_kl, summary.value_of_feedback) == ("none", None, None)
    assert summary.j is not None
    assert frame["expected_score"].notna().all()
    assert frame["exact_probability"].unique() == pytest.approx([0.925**12])


def test_noise_that_is_none_changes_nothing() -> None:
    ends = []
    for feedback in ("step", "none"):
        layer = {"feedback": feedback, "channel": {"kind": "none"}, "budget": {"trajectories": 128}}
        experiment = build(resolve_config([SMALL, layer, {"optimiser": {"batch_size": 64, "updates": 1}}]))
        assert not experiment.environment.ordered
        ends.append(experiment.train().trainer.state_dict()["network.policy_head.weight"])
    assert torch.equal(*ends)


LOOKING = {
    *("sgfn-kl-bootstrap", "sgfn-kl-trajectory", "sgfn-db", "sgfn-tb", "edb", "soft-q", "sac", "ppo", "kmer-plan"),
}


@pytest.mark.parametrize("method", METHODS)
def test_methods_that_read_outcomes_on_the_way_are_refused(method: str) -> None:
    if method not in LOOKING:
        ordering(method, 256)
        return
    with pytest.raises(ConfigError, match=f"{method} reads each outcome.*choose sgfn-kl.*or add --feedback step"):
        ordering(method, 256)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"dynamics": {"depends_on": "state"}}, "set dynamics.depends_on to position"),
        ({"task": "motifs:MAX,12", "imagination": {"updates": 0}}, "set imagination.updates above 0"),
        ({"task": "hypergrid"}, "leave out --feedback none"),
        ({"constraints": {"forbid": ["AAA"]}}, "leave them out"),
    ],
)
def test_settings_that_orders_cannot_have_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build(resolve_config([SMALL, settings]))
