"""The same training on every device there is; where there is none, the tests say so."""

import re
from pathlib import Path

import pytest
import torch

import stochflow

SOURCE = Path(stochflow.__file__).parent
TINY = ("optimiser.batch_size=16", "optimiser.updates=4", "model.width=8", "evaluation.num_samples=20")


def device_or_skip(name: str) -> str:
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there[name]:
        pytest.skip(f"this machine has no {name} device")
    return name


@pytest.mark.parametrize("method", ["sgfn-kl", "sgfn-kl-trajectory", "sgfn-kl-bootstrap", "sgfn-db", "edb", "gfn-tb"])
@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
def test_every_device_trains_like_the_cpu(tmp_path, device, method):
    device_or_skip(device)
    options = {"method": method, "noise": 0.25, "steps": 2, "settings": TINY}
    run = stochflow.train(**options, device=device, out=tmp_path / "run")
    expected = stochflow.train(**options, device="cpu", out=tmp_path / "cpu")
    # one step: after it rounding may lead to other draws
    assert run.metrics["loss"][0] == pytest.approx(expected.metrics["loss"][0], rel=1e-3)
    assert len(run.sample(5)) == 5
    assert run.evaluate().tv == pytest.approx(run.summary.tv, abs=1e-6)


@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
def test_graphs_train_on_every_device(tmp_path, device):
    device_or_skip(device)
    run = stochflow.train("hypergrid:2,4", noise=0.1, steps=2, settings=TINY, device=device, out=tmp_path / "run")
    assert run.summary.tv is not None


def test_a_run_of_one_device_goes_on_on_another(tmp_path):
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else ["cpu"])]
    for steps, device in zip((2, 4), devices, strict=True):
        run = stochflow.train(
            method="sgfn-db", steps=steps, settings=TINY, device=device, resume=steps > 2, out=tmp_path / "run"
        )
    assert run.summary.steps == 4


def test_nothing_asks_for_a_device_by_name():
    named = re.compile(r"\.cuda\(|\.to\([\"']|device=[\"'](cuda|mps)")
    found = [
        f"{path.name}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if named.search(line)
    ]
    assert found == []
