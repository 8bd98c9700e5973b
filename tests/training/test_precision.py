"""Products in bfloat16: the same network but for the last bits, and one sentence where it is not made."""

from typing import Any

import pytest
import torch
from torch import Tensor

import stochflow
from stochflow.core.errors import ConfigError
from stochflow.experiments.build import build
from stochflow.experiments.launch import resolve_config
from stochflow.experiments.torch_settings import computing
from stochflow.models.evaluation import AtPrefixes
from stochflow.models.flow_network import FlowNetwork

LOW = {"model": {"precision": "bfloat16"}}
SMALL: dict[str, Any] = {
    "method": "sgfn-kl",
    "device": "cpu",
    "model": {"width": 32},
    "optimiser": {"batch_size": 64, "updates": 4},
    "budget": {"trajectories": 512},
}


@pytest.fixture
def network(generator: torch.Generator) -> FlowNetwork:
    made = FlowNetwork(3, 4, (1, 2), width=8, num_layers=2)
    with torch.no_grad():
        for weight in made.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
        made.get_parameter("body.embedding.weight")[0] = 0.0  # pads
    return made.double()


@pytest.mark.parametrize("everywhere", [True, False])
def test_what_is_recorded_has_the_values_and_gradients_of_autograd(
    network: FlowNetwork, everywhere: bool, generator: torch.Generator
) -> None:
    tokens = torch.randint(3, (20, 4), generator=generator)
    depths = torch.randint(5, (20,), generator=generator)

    def asked(precision: torch.dtype | None, use_engine: bool) -> tuple[Tensor, tuple[Tensor, ...]]:
        network.body.precision, network.use_engine = precision, use_engine
        heads = network.evaluate(AtPrefixes(tokens, None if everywhere else depths)).heads()
        loss = torch.stack([(head * head.detach().cos()).sum() for head in heads]).sum()
        return heads.log_policy.detach(), torch.autograd.grad(loss, list(network.parameters()))

    exact, gradients = asked(None, use_engine=True)
    for use_engine in (True, False):
        found, low = asked(torch.float32, use_engine)
        assert 1e-9 < float((found - exact).abs().max()) < 1e-3
        torch.testing.assert_close(low, gradients, atol=1e-2, rtol=1e-3)


def test_a_run_in_bfloat16_learns_what_one_in_float32_learns() -> None:
    policies = []
    for settings in ({}, LOW):
        experiment = build(resolve_config([SMALL, settings]))
        with computing(experiment.config):
            while not experiment.trainer.finished:
                experiment.trainer.train_step()
            policies.append((experiment.evaluate()["regret"], next(iter(experiment.network.tree_log_policies()))))
    (regret, policy), (low_regret, low_policy) = policies
    assert not torch.equal(policy, low_policy)
    assert low_regret == pytest.approx(regret, rel=0.05)


def test_one_dnn_is_on_only_while_products_are_low() -> None:
    before = torch.backends.mkldnn.enabled
    for settings, expected in ((LOW, True), ({}, False)):
        with computing(resolve_config([SMALL, settings])):
            assert torch.backends.mkldnn.enabled == expected
        assert torch.backends.mkldnn.enabled == before


def test_what_computes_in_float32_says_so() -> None:
    with pytest.raises(ConfigError, match="a transformer computes in float32; leave precision bfloat16 out"):
        resolve_config([SMALL, {"model": {"body": "transformer", "precision": "bfloat16"}}])
    with pytest.raises(ConfigError, match="a lower precision cannot be had with hypergrid:2,4"):
        build(resolve_config([{**SMALL, **LOW, "task": "hypergrid:2,4"}]))


def test_a_run_is_evaluated_in_the_precision_it_was_trained_in(tmp_path: Any) -> None:
    config = LOW | {"optimiser": {"batch_size": 64, "updates": 2}, "evaluation": {"num_samples": 50}}
    run = stochflow.train("tfbind8", method="sgfn-db", config=config, trajectories=64, out=tmp_path / "run")
    assert stochflow.evaluate(tmp_path / "run").regret == pytest.approx(run.summary.regret, rel=1e-9)
