"""Surrogates by name: those that are there, and those of other packages, found by their metadata."""

import sys
from pathlib import Path

import pytest
import torch

import stochflow
from stochflow.core.errors import ConfigError
from stochflow.surrogates.letter_distances import bit_words
from stochflow.surrogates.registry import SURROGATES, make_surrogate

MODULE = """
from stochflow.surrogates.gaussian_process import GaussianProcess

class Mine(GaussianProcess):
    pass

def other(num_tokens, length, distance): return 3
def broken(num_tokens, length, distance): raise RuntimeError("no licence")
"""
POINTS = """[stochflow.surrogates]
mine = tiny_surrogates:Mine
no-surrogate = tiny_surrogates:other
broken = tiny_surrogates:broken
forest = tiny_surrogates:Mine
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution as pip leaves it: a module and its dist-info."""
    info = tmp_path / "tiny_surrogates-1.2.dist-info"
    info.mkdir()
    (tmp_path / "tiny_surrogates.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-surrogates\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tiny_surrogates", raising=False)
    return tmp_path


@pytest.mark.parametrize("name", SURROGATES)
def test_every_surrogate_fits_predicts_and_is_held_out(name: str) -> None:
    tokens = torch.randint(4, (30, 5), generator=torch.Generator().manual_seed(0))
    surrogate = make_surrogate(name, 4, 5, bit_words(4))
    assert isinstance(surrogate, stochflow.Surrogate)
    assert surrogate.predict(tokens).mean.tolist() == [0.0] * 30
    assert len(surrogate.leave_one_out().rows) == 0
    surrogate.fit(tokens, tokens.double().mean(dim=1))
    prediction = surrogate.predict(tokens[:7])
    assert prediction.mean.shape == prediction.deviation.shape == (7,)
    assert prediction.mean.dtype == prediction.deviation.dtype == torch.float64
    assert bool((prediction.deviation > 0).all())
    held_out = surrogate.leave_one_out()
    assert torch.equal(held_out.scores, tokens[held_out.rows].double().mean(dim=1))
    again = make_surrogate(name, 4, 5, bit_words(4))
    again.load_state_dict(surrogate.state_dict())
    assert torch.equal(again.predict_mean(tokens), surrogate.predict_mean(tokens))


def test_a_surrogate_of_another_package_is_made_by_its_name(package: Path) -> None:
    assert type(make_surrogate("mine", 4, 5)).__name__ == "Mine"
    assert type(make_surrogate("forest", 4, 5)).__name__ == "Forest"  # names of our own cannot be taken


@pytest.mark.parametrize(("name", "reason"), [("no-surrogate", "returned int"), ("broken", "RuntimeError: no licence")])
def test_what_is_broken_names_its_package(package: Path, name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        make_surrogate(name, 4, 5)
    assert "tiny-surrogates" in str(caught.value)


def test_an_unknown_name_lists_those_there_are() -> None:
    with pytest.raises(
        ConfigError, match="kmer-ridge, gaussian-process, calibrated-gaussian-process, forest, convolution"
    ):
        make_surrogate("gp", 4, 5)
