"""A small sweep that the tests of reports share, and a run of it that each test may damage."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from stochflow import api

NASTY = '</script><img src=x onerror="window.hacked=1">\'&amp;<b>'
TINY = (
    *("model.width=16", "model.num_layers=1", "model.kmers=[1]", "optimiser.batch_size=64", "optimiser.updates=2"),
    *("dynamics.rounds=2", "dynamics.sample_size=64", "plan.rows_per_level=32", "evaluation.every=0.34"),
    "evaluation.num_samples=200",
)


@pytest.fixture(scope="session")
def demo_sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods, two noises, three seeds in one of the four cells and one in the others."""
    sweep = tmp_path_factory.mktemp("sweep")
    cells = [("sgfn-kl-gamma", 0.25), ("sgfn-kl-gamma", 0.5), ("sgfn-db", 0.25), ("sgfn-db", 0.5)]
    for method, noise in cells:
        for seed in range(3 if (method, noise) == ("sgfn-db", 0.25) else 1):
            out = sweep / "runs" / f"{method}-{noise}-{seed}"
            api.train(method=method, noise=noise, seed=seed, trajectories=192, settings=TINY, device="cpu", out=out)
    return sweep


@pytest.fixture
def sweep(demo_sweep: Path, tmp_path: Path) -> Path:
    """A copy of the sweep."""
    return Path(shutil.copytree(demo_sweep, tmp_path / "sweep"))


@pytest.fixture
def run(demo_sweep: Path, tmp_path: Path) -> Path:
    """A copy of one run."""
    return Path(shutil.copytree(demo_sweep / "runs" / "sgfn-db-0.25-0", tmp_path / "run"))


@pytest.fixture
def poisoned_run(run: Path) -> Path:
    """A run with hostile text wherever it keeps text."""
    config = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(config | {"task": NASTY, "method": NASTY}))
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(summary | {"noise": NASTY, "task": NASTY, "status": NASTY}))
    cell = '"' + NASTY.replace('"', '""') + '"'
    (run / "samples.csv").write_text(
        f'sequence,intended,score,log_reward,log_prob\n{cell},{cell},0.9,-1,-2\n{cell[:-2]}x",A,0.8,-1,-2\n'
    )
    (run / "versions.json").write_text(json.dumps({NASTY: NASTY}))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        del line["crc32"]
    terms = {f"{NASTY}_mean": 1.0, f"{NASTY}_std": 0.5}
    (run / "metrics.jsonl").write_text("".join(json.dumps(line | terms) + "\n" for line in lines))
    return run
