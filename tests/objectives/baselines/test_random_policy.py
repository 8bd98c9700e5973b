"""Random intentions: nothing is learned, and log Z is still estimated."""

from collections.abc import Callable

import pytest
import torch

from stochflow.experiments.experiment import Experiment


def test_nothing_is_learned_and_the_partition_function_is_estimated(
    tiny: Callable[..., Experiment], trained: Callable[..., Experiment]
) -> None:
    experiment = trained(
        "random", channel={"kind": "confusion", "matrix": [[0.8, 0.1, 0.1], [0.5, 0.4, 0.1], [0, 0, 1]]}
    )
    before = tiny("random").network.state_dict()
    assert all(torch.equal(weight, before[name]) for name, weight in experiment.network.state_dict().items())
    assert "loss" not in experiment.trainer.train_step()
    assert experiment.truth is not None
    # 24 × 64 draws of R/P, whose spread is below its mean: five standard errors are below 0.13
    assert experiment.trainer.objective.log_z() == pytest.approx(experiment.truth.attainable.log_z, abs=0.13)
