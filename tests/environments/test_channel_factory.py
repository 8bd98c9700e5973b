"""Channels from what people type after --noise, and from the files they have."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import yaml

import stochflow
from stochflow.config.layers import resolve
from stochflow.config.noise import parse_noise
from stochflow.core.errors import ConfigError, DataError, StochflowError
from stochflow.environments.channel_factory import make_channel, read_matrix, with_matrix_inside
from stochflow.environments.channels import Channel
from stochflow.experiments.launch import prepare

LENGTH = 8
# rows differ, so that a transposed table is noticed
TABLE = [[0.7, 0.1, 0.1, 0.1], [0.0, 1.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25], [0.1, 0.2, 0.3, 0.4]]


def channel(noise: float | str) -> Channel:
    """The channel that `--noise` gives a task of DNA 8-mers."""
    return configured(**parse_noise(noise))


def configured(**settings: Any) -> Channel:
    return make_channel(resolve([{"channel": settings}]).channel, 4, LENGTH)


def csv_text(table: list[list[float]]) -> str:
    return "".join(",".join(map(str, row)) + "\n" for row in table)


@pytest.mark.parametrize("noise", [0.25, "0.25", " 2.5e-1 ", ".25"])
def test_a_number_is_a_uniform_slip(noise: float | str) -> None:
    slip = channel(noise)
    assert slip.slip == slip.noise == 0.25
    expected = torch.full((4, 4), 0.0625, dtype=torch.float64) + 0.75 * torch.eye(4)
    torch.testing.assert_close(slip.matrix(0), expected, atol=1e-15, rtol=0)


def test_none_obeys() -> None:
    assert torch.equal(channel("none").matrix(3), torch.eye(4, dtype=torch.float64))
    assert channel("none").slip == 0.0


@pytest.mark.parametrize(("noise", "rate"), [("dna-synthesis", 0.01), ("dna-synthesis:0.06", 0.06)])
def test_dna_synthesis_takes_an_optional_rate(noise: str, rate: float) -> None:
    row = channel(noise).matrix(0)[0]  # A: two thirds of the errors are the transition to G
    expected = torch.tensor([1 - rate, rate / 6, rate * 2 / 3, rate / 6], dtype=torch.float64)
    torch.testing.assert_close(row, expected, atol=1e-15, rtol=0)
    assert channel(noise).noise == f"dna-synthesis:{rate}"


def test_numbers_between_commas_are_one_slip_per_position() -> None:
    alphas = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    positional = channel(", ".join(map(str, alphas)))
    for position, alpha in enumerate(alphas):
        assert float(positional.matrix(position)[0, 1]) == pytest.approx(alpha / 4, abs=1e-15)


@pytest.mark.parametrize("suffix", [".csv", ".yaml", ".yml"])
def test_a_file_is_a_matrix_with_intentions_as_rows(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"matrix{suffix}"
    path.write_text(csv_text(TABLE) if suffix == ".csv" else yaml.safe_dump(TABLE), encoding="utf-8")
    confusion = channel(str(path))
    torch.testing.assert_close(confusion.matrix(5), torch.tensor(TABLE, dtype=torch.float64), atol=1e-15, rtol=0)
    assert confusion.noise == str(path)


def test_a_yaml_file_may_name_its_matrix(tmp_path: Path) -> None:
    path = tmp_path / "named.yaml"
    path.write_text(yaml.safe_dump({"source": "plate 7", "matrix": TABLE}), encoding="utf-8")
    assert torch.equal(read_matrix(path), torch.tensor(TABLE, dtype=torch.float64))


def test_letters_of_a_file_are_those_of_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "letters.yaml"
    path.write_text(yaml.safe_dump({"letters": "TACG", "matrix": TABLE}), encoding="utf-8")
    config = resolve([{"channel": parse_noise(str(path))}]).channel
    for each in (config, with_matrix_inside(config)):
        found = make_channel(each, 4, LENGTH, "ACGT").matrix(0)
        assert found[0].tolist() == [1.0, 0.0, 0.0, 0.0]  # the row of A is the second
        assert found[3].tolist() == pytest.approx([0.1, 0.1, 0.1, 0.7])  # the row of T is the first
        assert found[2].tolist() == pytest.approx([0.2, 0.3, 0.4, 0.1])  # the row of G is the last


@pytest.mark.parametrize(
    ("letters", "reason"),
    [
        ("ACGU", "are for the letters ACGU and the task has ACGT; give those of a channel of the same letters"),
        ("ACG", "have 4 rows and name the letters ACG; name the letter of each row once"),
        ("ACGG", "name the letter of each row once"),
        (["A", "C", "G", "T"], "names letters that are no text"),
    ],
)
def test_letters_that_are_not_those_of_the_task_are_refused(letters: object, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "letters.yaml"
    path.write_text(yaml.safe_dump({"letters": letters, "matrices": [TABLE] * LENGTH}), encoding="utf-8")
    config = resolve([{"channel": parse_noise(str(path))}]).channel
    with pytest.raises(StochflowError, match=reason):
        make_channel(config, 4, LENGTH, "ACGT")


def test_a_yaml_list_of_matrices_is_one_per_position(tmp_path: Path) -> None:
    identity = torch.eye(4).tolist()
    path = tmp_path / "positions.yaml"
    path.write_text(yaml.safe_dump([TABLE] + [identity] * (LENGTH - 1)), encoding="utf-8")
    positional = channel(str(path))
    assert float(positional.matrix(0)[3, 2]) == pytest.approx(0.3)
    assert torch.equal(positional.matrix(7), torch.eye(4, dtype=torch.float64))


def test_matrices_may_stand_in_the_settings_themselves() -> None:
    assert float(configured(kind="confusion", matrix=TABLE).matrix(0)[3, 2]) == pytest.approx(0.3)
    positional = configured(kind="positional", matrices=[torch.eye(4).tolist()] * 7 + [TABLE])
    assert float(positional.matrix(7)[3, 2]) == pytest.approx(0.3)
    assert float(positional.matrix(6)[3, 2]) == 0.0


@pytest.mark.parametrize("noise", [1, 1.0, -0.1, "2", "1e300", "nan", "inf", "-inf", float("nan")])
def test_a_slip_outside_its_range_is_refused(noise: float | str) -> None:
    with pytest.raises(ConfigError, match=r"noise.*(below 1|finite)"):
        channel(noise)
    with pytest.raises(ConfigError, match=r"noise.*(below 1|finite)"):
        channel(",".join([str(noise)] * LENGTH))
    with pytest.raises(ConfigError, match=r"(below 1|finite)"):
        channel(f"dna-synthesis:{noise}")


def test_the_wrong_number_of_positions_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "three.yaml"
    path.write_text(yaml.safe_dump([TABLE] * 3), encoding="utf-8")
    for noise in ("0.1,0.2,0.3", str(path)):
        with pytest.raises(ConfigError, match="3 position matrices but the task has length 8; give one matrix per"):
            channel(noise)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (csv_text([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), "3×3 but the task has 4 letters"),
        (csv_text(TABLE[:3]), "square"),
        (csv_text(TABLE).replace("0.7", "0.8"), "row 1 .* sums to 1.1; every row must sum to 1"),
        (csv_text(TABLE).replace("0.7,0.1", "0.9,-0.1"), "negative or non-finite"),
        (csv_text(TABLE).replace("0.7", "nan"), "negative or non-finite"),
        (csv_text(TABLE).replace("0.7", ""), "negative or non-finite"),
        (csv_text(TABLE).replace("0.7", "0.7j"), "does not hold a table"),
        ("A,C,G,T\n" + csv_text(TABLE), "does not hold a table"),
        (csv_text(TABLE).replace(",", ";"), "does not hold a table"),
        (csv_text(TABLE) + "1,2,3,4,5,6\n", "does not hold a table"),
        ("", "does not hold a table"),
        ("\0" * 50, "does not hold a table|holds probabilities"),
    ],
)
def test_a_csv_that_is_no_channel_says_why(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "matrix.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(StochflowError, match=reason):
        channel(str(path))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "text",
        "[]",
        "[[]]",
        "[[[]]]",
        "[[1, 0], [1]]",
        "a: 1",
        "matrix: null",
        "matrix: {a: 1}",
        "[[2020-13-45]]",
        f"[[{'9' * 400}]]",  # larger than any float
        f"[[{'9' * 5000}]]",
        "[" * 3000,
        "[[1, 2",
        "&a [*a]",
        "!!python/object/apply:os.getcwd []",
    ],
    ids=lambda text: text[:24],
)
def test_a_yaml_file_that_is_no_channel_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "matrix.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(StochflowError, match=r"(give|replace|must|set) ") as caught:
        channel(str(path))
    assert "\n" not in str(caught.value)


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    for name in ("garbage.csv", "garbage.yaml"):
        path = tmp_path / name
        path.write_bytes(bytes(range(256)) * 4)
        with pytest.raises(DataError, match=f"{name} does not hold a table"):
            channel(str(path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for name in ("missing.csv", "missing.yaml"):
        with pytest.raises(DataError, match=f"{name} does not exist; check the path"):
            channel(str(tmp_path / name))


def test_a_directory_is_no_channel_file(tmp_path: Path) -> None:
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    with pytest.raises(DataError, match=r"folder\.csv does not hold a table"):
        channel(str(folder))


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"kind": "confusion"}, "set channel.matrix or channel.file"),
        ({"kind": "positional"}, "set channel.matrices, channel.file or a list as channel.noise"),
        ({"kind": "positional", "noise": []}, "give one matrix or slip per position"),
        ({"kind": "uniform-slip", "noise": [0.1] * 8}, "use kind positional"),
        ({"kind": "dna-synthesis", "noise": [0.1] * 8}, "use kind positional"),
        ({"kind": "confusion", "matrix": [[1.0, 0.0], [1.0]]}, "equal rows"),
    ],
)
def test_settings_that_make_no_channel_name_the_remedy(settings: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ConfigError, match=remedy):
        configured(**settings)


@pytest.mark.parametrize("settings", [{"matrix": TABLE}, {"matrices": [TABLE] * 8}, {"file": "matrix.csv"}])
def test_a_matrix_that_the_kind_would_ignore_is_refused(settings: dict[str, Any]) -> None:
    for kind in ("none", "uniform-slip", "dna-synthesis"):
        with pytest.raises(ConfigError, match=r"channel"):
            configured(kind=kind, **settings)


TABLE_OF_LENGTHS = pd.DataFrame({"sequence": ["A", "AB", "BBA", "ABAB"], "score": [0.1, 0.9, 0.3, 1.0]})
FLIPS = [[0.9, 0.1], [0.2, 0.8]]


def with_rates(tmp_path: Path, **rates: Any) -> str:
    path = tmp_path / f"channel{len(rates)}.yaml"
    path.write_text(yaml.safe_dump({"matrix": FLIPS, **rates}), encoding="utf-8")
    TABLE_OF_LENGTHS.to_csv(tmp_path / "mixed.csv", index=False)
    return str(path)


@pytest.mark.parametrize("deletion", [0.1, {"rate": 0.1, "lower": 0.0, "upper": 0.2, "number": 3}])
def test_edits_of_a_file_are_simulated_where_lengths_vary(deletion: Any, tmp_path: Path) -> None:
    path = with_rates(tmp_path, deletion=deletion, duplication=0.05)
    table = {"table": str(tmp_path / "mixed.csv"), "alphabet": "AB", "gap_score": 0.0, "variable_length": True}
    found = stochflow.exact(**table, noise=path)
    given = stochflow.exact(**table, noise=with_rates(tmp_path), deletion=0.1, duplication=0.05)
    assert found["min_kl"] == given["min_kl"] > stochflow.exact(**table, noise=path, deletion=0.01)["min_kl"]
    prepared = prepare(training_layers_of(path, tmp_path))
    assert (prepared.config.channel.deletion, prepared.config.channel.duplication) == (0.1, 0.05)
    assert prepared.config.channel.file is None


def training_layers_of(path: str, tmp_path: Path) -> list[dict[str, Any]]:
    table = {"file": str(tmp_path / "mixed.csv"), "alphabet": "AB", "gap_score": 0.0}
    return [{"task": "table", "table": table, "lengths": {"variable": True}, "channel": parse_noise(path)}]


def test_edits_of_a_file_are_told_of_where_lengths_do_not_vary(tmp_path: Path) -> None:
    path = with_rates(tmp_path, deletion=0.1)
    with pytest.warns(UserWarning, match=r"deletes 0.1 and duplicates 0 of letters, which is not simulated") as caught:
        found = stochflow.exact("bits:8,1", noise=path)
    assert len(caught) == 1
    assert found["min_kl"] > 0
    assert (channel_of(path).deletion, channel_of(path).duplication) == (0.1, 0.0)


def channel_of(path: str) -> Channel:
    return make_channel(resolve([{"channel": parse_noise(path)}]).channel, 2, LENGTH)


@pytest.mark.parametrize("deletion", [-0.1, 1.0, "much", [0.1], {"lower": 0.1}, float("nan")])
def test_a_rate_that_is_none_is_refused(deletion: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not hold a table of probabilities"):
        channel_of(with_rates(tmp_path, deletion=deletion))
