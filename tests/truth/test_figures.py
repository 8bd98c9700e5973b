"""What is known before training, where not everything is."""

import math

import pytest

from stochflow.core.errors import ConfigError
from stochflow.environments.channels import noiseless, uniform_slip
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.bits import BitSequences
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.environments.sequences.motifs import motif_task
from stochflow.truth.figures import exact_figures


def test_what_is_enumerated_has_every_figure() -> None:
    found = exact_figures(SequenceEnvironment(BitSequences(8, 2), uniform_slip(4, 0.1)), Reward(8.0, 1e-6, 0.0))
    assert None not in found.values()
    assert len(found["infeasible_share"]) == 4


def test_an_automaton_has_no_total_variation() -> None:
    found = exact_figures(SequenceEnvironment(motif_task("MAX,12"), uniform_slip(4, 0.1)), Reward(9.0, 1e-40, 0.0))
    assert [name for name, value in found.items() if value is None] == ["min_tv"]
    assert "infeasible_share" not in found


def test_bounds_of_log_z_are_told_only_where_they_are_close() -> None:
    environment = SequenceEnvironment(BitSequences(), noiseless(256))
    found = exact_figures(environment, Reward(240.0, 1e-6, 0.0))
    assert found["log_z_true"] == pytest.approx(math.log(60) + 240 + 120 * math.log1p(math.exp(-2)))
    assert (found["min_kl"], found["min_tv"], found["attainable_score"]) == (None, None, None)
    with pytest.raises(ConfigError, match="too large to enumerate"):
        exact_figures(environment, Reward(3.0, 1e-6, 0.0))
