"""One run shared out among processes: the same numbers as in one process, and everything paid and written once."""

import itertools
import json
import os
import random
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import stochflow
from stochflow.cli import app as cli
from stochflow.core.processes import leads
from stochflow.training import distributed as parallel
from stochflow.training.distributed import ProcessGroup

WORKER = Path(__file__).with_name("distributed_worker.py")
STEPS = 4
# an odd batch: the shares differ in size
TINY = [
    *("optimiser.batch_size=15", "optimiser.updates=3", "model.width=16", "plan.rows_per_level=16"),
    *("evaluation.num_samples=50", "evaluation.every=1.0"),
]
SAME: dict[str, dict[str, Any]] = {
    "tb": {"method": "gfn-tb"},
    "db": {"method": "sgfn-db"},
    "trajectory-kl": {"method": "sgfn-kl-trajectory", "settings": ["exploration.epsilon=0.1"]},
    "planned-kl": {"method": "sgfn-kl", "settings": ["objective.lambda_ratio=0.1"]},
    "constrained": {"method": "sgfn-tb", "constraints": {"forbid": ["AC"]}},
    "noisy-reward": {"method": "sgfn-kl", "reward_noise": "gaussian:0.1"},
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scores without a pattern of all DNA of length 5: no gradient is nothing but rounding."""
    rng, path = random.Random(0), tmp_path_factory.mktemp("table") / "scores.csv"
    rows = (f"{''.join(letters)},{rng.random()}\n" for letters in itertools.product("ACGT", repeat=5))
    path.write_text("sequence,score\n" + "".join(rows))
    return path


def options_of(name: str, table: Path) -> dict[str, Any]:
    options = {"table": str(table), "noise": 0.25, "feedback": "step", "steps": STEPS, "device": "cpu", **SAME[name]}
    return options | {"settings": [*TINY, *options.get("settings", [])]}


@pytest.fixture(scope="module")
def folder(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes left behind."""
    folder = tmp_path_factory.mktemp("shared")
    tiny = {"settings": TINY, "device": "cpu"}
    cases = {name: {"options": options_of(name, table)} for name in SAME} | {
        "paid": {"own_oracle": True, "options": {"method": "gfn-tb", "oracle_calls": 40, **tiny}},
        "stopped": {"stop_after": 2, "options": options_of("planned-kl", table)},
        "rival": {"options": {"task": "tfbind8", "method": "ppo", "steps": 2, **tiny}},
        "graph": {"options": {"task": "hypergrid", "method": "gfn-tb", "steps": 2}},
        "broken": {"own_oracle": True, "broken": True, "options": {"method": "gfn-tb", "steps": 2, **tiny}},
    }
    (folder / "cases.json").write_text(json.dumps(cases))
    source = str(Path(stochflow.__file__).parents[1])
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", WORKER, folder],
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
        check=True,
        timeout=1800,
    )
    return folder


@pytest.fixture(scope="module")
def alone(table: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, stochflow.Run]:
    """The same runs in one process."""
    path = tmp_path_factory.mktemp("alone")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "stalled")  # in so few steps nothing is learned
        return {name: stochflow.train(out=path / name, **options_of(name, table)) for name in SAME}


def assert_equal_up_to_rounding(one: stochflow.Run, two: stochflow.Run) -> None:
    assert two.metrics["step"].tolist() == list(range(1, STEPS + 1))  # nobody else wrote into it
    for column in ("loss", "batch_score", "oracle_calls"):
        assert two.metrics[column].to_numpy() == pytest.approx(one.metrics[column].to_numpy(), rel=1e-4, abs=1e-6)
    weights, others = (run.experiment().network.state_dict() for run in (one, two))
    for name, weight in weights.items():
        # all together: Adam makes a step of any size out of a gradient that is nothing but rounding
        assert float((others[name] - weight).norm()) <= 1e-3 * float(weight.norm()), name
    assert two.summary.kl == pytest.approx(one.summary.kl, abs=1e-4)


@pytest.mark.parametrize("name", SAME)
def test_two_processes_learn_what_one_does(name: str, folder: Path, alone: dict[str, stochflow.Run]) -> None:
    assert_equal_up_to_rounding(alone[name], stochflow.load(folder / name))


def test_a_design_is_paid_for_once_and_by_one_process(folder: Path) -> None:
    asked = (folder / "paid.asked-by-0").read_text().splitlines()
    assert len(asked) == len(set(asked)) == stochflow.load(folder / "paid").summary.oracle_calls == 40
    assert not (folder / "paid.asked-by-1").exists()


@pytest.mark.filterwarnings("ignore:stalled")
def test_a_run_that_one_process_stopped_goes_on_in_another_number_of_them(
    folder: Path, alone: dict[str, stochflow.Run]
) -> None:
    stopped = stochflow.load(folder / "stopped")
    assert (stopped.summary.steps, stopped.summary.status) == (2, "interrupted")
    resumed = stochflow.train(out=stopped.path, resume=True)
    assert_equal_up_to_rounding(alone["planned-kl"], resumed)


@pytest.mark.parametrize("name", ["rival", "graph"])
def test_what_cannot_be_shared_out_is_refused_by_all(name: str, folder: Path) -> None:
    errors = [(folder / f"{name}.error-of-{rank}").read_text() for rank in range(2)]
    assert errors[0] == errors[1]
    assert errors[0].startswith("ConfigError")
    assert "without torchrun" in errors[0]
    assert not (folder / name).exists()


def test_an_error_in_one_process_ends_the_others(folder: Path) -> None:
    assert (folder / "broken.error-of-0").read_text().startswith("OracleError: the oracle")
    assert (folder / "broken.error-of-1").read_text().startswith("DistributedError: another process")


@pytest.mark.parametrize("num_rows", [0, 1, 7, 64])
def test_every_row_belongs_to_one_process(num_rows: int) -> None:
    teams = [ProcessGroup(rank, 3) for rank in range(3)]
    rows = [row for team in teams for row in range(num_rows)[team.share(num_rows)]]
    assert rows == list(range(num_rows))
    sizes = [len(range(num_rows)[team.share(num_rows)]) for team in teams]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(("rank", "speaks"), [("0", True), ("1", False)])
def test_one_process_speaks(
    rank: str, speaks: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"TORCHELASTIC_RUN_ID": "test", "WORLD_SIZE": "2", "RANK": rank}.items():
        monkeypatch.setenv(name, value)
    for console in (cli.console, cli.messages):
        monkeypatch.setattr(console, "quiet", False)
    assert parallel.launched()
    monkeypatch.setattr(sys, "argv", ["stochflow", "compare"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert ("without torchrun" in capsys.readouterr().err) == speaks


def test_a_process_alone_is_no_team(monkeypatch: pytest.MonkeyPatch) -> None:
    with parallel.joined() as team:
        assert team is None
    monkeypatch.setenv("WORLD_SIZE", "2")  # what others call a world is not torchrun's
    assert not parallel.launched()
    assert leads()
