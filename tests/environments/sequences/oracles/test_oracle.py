"""Asking: batches, workers, time limits, retries, and what comes of functions that misbehave."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stochflow.config.oracle import OracleConfig
from stochflow.core.errors import OracleError
from stochflow.environments.sequences.oracles import worker
from stochflow.environments.sequences.oracles.cache import ScoreCache
from stochflow.environments.sequences.oracles.clients import InProcessClient, WorkerClient
from stochflow.environments.sequences.oracles.oracle import Oracle

DESIGNS = ["AAAA", "AACA", "CCAA", "CACA", "AAAA"]
FAST = {"length": 4, "alphabet": "AC", "backoff": 0.0, "timeout": 20.0, "retries": 1}


def asked(lab: Path) -> list[str]:
    path = lab / "calls.txt"
    return [line.split()[1] for line in path.read_text().splitlines()] if path.exists() else []


def make_oracle(lab: Path, name: str, **settings: object) -> Oracle:
    config = OracleConfig.model_validate(FAST | settings)
    askers = [WorkerClient(f"lab:{name}", config.timeout) for _ in range(config.workers)]
    return Oracle(f"lab:{name}", askers, ScoreCache(lab / "cache.sqlite", name, "me"), config)


def test_equal_designs_are_asked_once_and_never_again(lab: Path) -> None:
    oracle = make_oracle(lab, "good", batch_size=3)
    assert oracle.scores(DESIGNS) == [1.0, 0.75, 0.5, 0.5, 1.0]
    assert oracle.scores(["CACA", "CCCC"]) == [0.5, 0.0]
    oracle.close()
    assert make_oracle(lab, "good").scores(DESIGNS) == [1.0, 0.75, 0.5, 0.5, 1.0]
    assert sorted(asked(lab)) == ["AAAA", "AACA", "CACA", "CCAA", "CCCC"]
    sizes = [int(line.split()[0]) for line in (lab / "calls.txt").read_text().splitlines()]
    assert sizes == [3, 3, 3, 1, 1]


@pytest.mark.parametrize("name", ["arrays", "changes", "talks", "Group.member"])
def test_what_is_unusual_but_right_is_taken(lab: Path, name: str) -> None:
    oracle = make_oracle(lab, name)
    assert oracle.scores(DESIGNS) == [1.0, 0.75, 0.5, 0.5, 1.0]
    oracle.close()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nan", "its score is nan"),
        ("infinite", "its score is inf"),
        ("negative", "its score is -1.0"),
        ("text", "it returned the text '0.5' instead of a number"),
        ("raises", "it raised KeyError: 'plate.n7'"),
        ("dies", "its process ended with exit code 9"),
    ],
)
def test_the_design_that_fails_is_named_and_the_others_are_kept(lab: Path, name: str, sentence: str) -> None:
    oracle = make_oracle(lab, name)
    with pytest.raises(OracleError, match=f"'lab:{name}' failed on the design CCAA: {sentence}"):
        oracle.scores([*DESIGNS[:2], "CCAA"])
    assert oracle.cache.get(DESIGNS) == {"AAAA": 1.0, "AACA": 0.75}
    oracle.close()


def test_a_function_that_hangs_is_ended_and_the_design_is_named(lab: Path) -> None:
    oracle = make_oracle(lab, "hangs", timeout=1.0, retries=0)
    started = time.monotonic()
    with pytest.raises(OracleError, match="on the design CCAA: it gave no answer within 1 s"):
        oracle.scores(DESIGNS)
    assert time.monotonic() - started < 20.0
    assert set(oracle.cache.get(DESIGNS)) == {"AAAA", "AACA"}
    oracle.close()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nothing", "it returned NoneType instead of a list of numbers"),
        ("a_text", "it returned str instead of a list of numbers"),
        ("too_few", "it returned 0 scores for 1 designs"),
        ("a_table", "what it returned are not numbers"),
    ],
)
def test_a_wrong_answer_is_refused(lab: Path, name: str, sentence: str) -> None:
    oracle = make_oracle(lab, name)
    with pytest.raises(OracleError, match=f"on the design AAAA: {sentence}"):
        oracle.scores(DESIGNS)
    assert oracle.cache.get(DESIGNS) == {}
    oracle.close()


def test_a_call_that_failed_is_made_again(lab: Path) -> None:
    oracle = make_oracle(lab, "flaky")
    assert oracle.scores(DESIGNS)[0] == 1.0
    oracle.close()
    (lab / "tried").unlink()
    stubborn = make_oracle(lab, "flaky", retries=0)
    with pytest.raises(OracleError, match="OSError: the robot is busy"):
        stubborn.scores(["CCCC"])
    stubborn.close()


def test_pauses_between_retries_double(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    oracle = make_oracle(lab, "nan", retries=3, backoff=0.5)
    pauses: list[float] = []
    monkeypatch.setattr(oracle._closed, "wait", pauses.append)
    with pytest.raises(OracleError):
        oracle.scores(["CCAA"])
    assert pauses == [0.5, 1.0, 2.0]
    oracle.close()


def test_workers_work_at_the_same_time(lab: Path) -> None:
    oracle = make_oracle(lab, "meets", batch_size=1, workers=4, timeout=60.0, retries=0)
    assert oracle.scores(["AAAA", "AACA", "ACAA", "CAAA"]) == [1.0, 0.75, 0.75, 0.75]
    oracle.close()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("lab", "not of the form package.module:function"),
        (":good", "not of the form"),
        ("lab:", "not of the form"),
        ("lab:Group.", "not of the form"),
        ("lab:missing", "'lab' has no 'missing'"),
        ("lab:number", "'lab:number' is not a function but int"),
        ("lab:coroutine", "is a coroutine; give an ordinary function"),
        ("a_module_that_is_not_there:f", "cannot be imported .ModuleNotFoundError"),
        ("fails:f", "cannot be imported .ModuleNotFoundError: No module named 'a_package_that_is_not_there'"),
        ("exits:f", "cannot be imported .SystemExit: not today"),
    ],
)
def test_what_cannot_be_asked_is_refused_at_the_start(lab: Path, name: str, sentence: str) -> None:
    asker = WorkerClient(name, 20.0)
    with pytest.raises(OracleError, match=f"the oracle '{name}' cannot be used: .*{sentence}"):
        asker.start()
    asker.close()


def test_a_function_inside_this_process_is_judged_alike(tmp_path: Path) -> None:
    config = OracleConfig.model_validate(FAST)

    def spoiled(designs: list[str]) -> list[float]:
        return [-1.0 if design == "CC" else 1.0 for design in designs]

    clients, cache = [InProcessClient(spoiled, "spoiled")], ScoreCache(tmp_path / "c", "spoiled", "me")
    oracle = Oracle("spoiled", clients, cache, config)
    with pytest.raises(OracleError, match=r"failed on the design CC: its score is -1\.0"):
        oracle.scores(["AA", "CC"])
    assert oracle.cache.get(["AA", "CC"]) == {"AA": 1.0}
    oracle.close()


def test_a_worker_ends_with_the_process_that_asked_it(lab: Path) -> None:
    """A function that sleeps for a minute must not outlive its caller."""
    process = subprocess.Popen([sys.executable, worker.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    first = {"path": [str(lab), *sys.path], "function": "lab:hangs"}
    process.stdin.write(json.dumps(first).encode() + b"\n")
    process.stdin.flush()
    assert process.stdout.readline() == b'{"scores": []}\n'
    process.stdin.write(b'["CCAA"]\n')
    process.stdin.flush()
    process.stdin.close()
    assert process.wait(timeout=20) == 0
    process.stdout.close()
