"""The same calls on a Ray cluster: a real one on the loopback interface, and a pretended one that fails on demand."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import stochflow
from stochflow.config.oracle import OracleConfig
from stochflow.core.errors import ConfigError, OracleError
from stochflow.core.ray_cluster import RayCluster
from stochflow.environments.sequences.oracles import ray_client
from stochflow.environments.sequences.oracles.cache import ScoreCache
from stochflow.environments.sequences.oracles.clients import WorkerClient
from stochflow.environments.sequences.oracles.oracle import Oracle
from stochflow.environments.sequences.oracles.ray_client import RayClient
from stochflow.environments.sequences.oracles.task import CACHE
from stochflow.reports.commands import train_command
from tests.environments.sequences.oracles.conftest import asked

# a cluster with two workers that lives until its standard input ends
HEAD = """
import sys
from stochflow.core.ray_cluster import RayCluster
cluster = RayCluster(2, None)
cluster.connect()
print(cluster.ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
cluster.close()
"""
TINY: dict[str, Any] = {
    "method": "sgfn-db",
    "model": {"width": 16},
    "optimiser": {"batch_size": 16, "updates": 2},
    "dynamics": {"rounds": 1},
    "evaluation": {"num_samples": 30},
    "oracle": {"backoff": 0.0, "retries": 1, "timeout": 60.0, "workers": 2, "batch_size": 8},
}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where a Ray cluster with two workers listens."""
    with pytest.MonkeyPatch.context() as patch:
        constants = pytest.importorskip("ray._private.ray_constants")
        # otherwise Ray replaces 127.0.0.1 by the machine's outer address
        patch.setattr(constants, "ENABLE_RAY_CLUSTER", False)
        process, listens = _head()
        for _ in range(2):  # on a busy machine a node may be given up before it is there
            if not listens:
                process.kill()
                process.wait()
                process, listens = _head()
        try:
            yield listens
            process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()


def _head() -> tuple[subprocess.Popen[str], str]:
    """The process that holds a cluster, and its address; empty when it did not start."""
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def train(out: Path, oracle: str, **options: Any) -> stochflow.Run:
    given: dict[str, Any] = {"config": TINY, "length": 8, "alphabet": "dna", "oracle_calls": 40} | options
    return stochflow.train(oracle=oracle, out=out, **given)


def test_a_cluster_with_a_killed_worker_pays_and_learns_as_processes_here(
    lab: Path, tmp_path: Path, address: str
) -> None:
    assert address.startswith("127.0.0.1:")
    whole = train(tmp_path / "whole", "lab:good")
    (lab / "calls.txt").unlink()
    run = train(tmp_path / "run", "lab:fragile", oracle_engine="ray", address=address)
    assert run.summary.oracle_calls == whole.summary.oracle_calls == 40
    pd.testing.assert_frame_equal(run.metrics.drop(columns="seconds"), whole.metrics.drop(columns="seconds"))
    # the calls that were under way on the worker were made again, and every design was paid for once
    calls = Counter(asked(lab))
    assert (lab / "killed").exists()
    assert set(calls.values()) == {1, 2}
    kept = [ScoreCache(path / CACHE, name, "").get(calls) for path, name in paid_by(run, whole)]
    assert kept[0] == kept[1]
    assert len(kept[0]) == 40
    cluster = RayCluster(2, address)
    cluster.connect()
    try:
        assert RayClient("lab:dies", 20.0, cluster).score(["CCAA"]) == {"problem": "its process ended with exit code 9"}
        assert RayClient("lab:hangs", 0.5, cluster).score(["CC"]) == {"problem": "it gave no answer within 0.5 s"}
        with pytest.raises(OracleError, match="'lab:missing' cannot be used: 'lab' has no 'missing'; correct it"):
            RayClient("lab:missing", 20.0, cluster).start()
    finally:
        cluster.close()


def paid_by(*runs: stochflow.Run) -> list[tuple[Path, str]]:
    return [(run.path, run.config.task.removeprefix("oracle:")) for run in runs]


class RayError(Exception):
    pass


class GetTimeoutError(RayError):
    pass


class RayTaskError(RayError):
    pass


class PretendedRay(ModuleType):
    """Tasks of a cluster, each run when its result is asked for, in order; some fail in place of that."""

    def __init__(self, failures: list[Exception | None]) -> None:
        super().__init__("ray")
        self.exceptions = SimpleNamespace(RayError=RayError, GetTimeoutError=GetTimeoutError, RayTaskError=RayTaskError)
        self.failures, self.cancelled, self.options = failures, 0, dict[str, Any]()
        self.is_initialized = lambda: True

    def remote(self, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        self.options = options
        return lambda function: SimpleNamespace(remote=lambda *given: lambda: function(*given))

    def get(self, task: Callable[[], Any], timeout: float | None) -> Any:
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        return task()

    def cancel(self, task: object, force: bool) -> None:
        self.cancelled += 1


def pretend(monkeypatch: pytest.MonkeyPatch, *failures: Exception | None) -> PretendedRay:
    ray = PretendedRay(list(failures))
    monkeypatch.setitem(sys.modules, "ray", ray)
    return ray


@pytest.fixture
def workers() -> Iterator[None]:
    """Ends the worker processes that tasks have started in this process."""
    made: list[WorkerClient] = []
    plain = ray_client._client

    def remembered(*given: Any) -> WorkerClient:
        made.append(plain(*given))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_client, "_client", remembered)
        yield
    for client in made:
        client.close()
    plain.cache_clear()


@pytest.mark.usefixtures("workers")
def test_a_lost_worker_costs_a_retry_and_no_call(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pretend(monkeypatch, RayError("the worker\ndied"))
    config = OracleConfig(length=4, alphabet="AC", backoff=0.0, retries=1)
    client = RayClient("lab:good", 20.0, RayCluster(1, None))
    oracle = Oracle("lab:good", [client], ScoreCache(lab / "cache.sqlite", "good", "me"), config)
    assert oracle.scores(["AAAA", "AACA", "AAAA"]) == [1.0, 0.75, 1.0]
    assert asked(lab) == ["AAAA", "AACA"]
    assert ray.options["max_retries"] == 0
    # a worker that is lost every time is what the design is given up for
    ray.failures = [RayError("the worker\ndied")] * 2
    with pytest.raises(OracleError, match=r"on the design CCCC: its Ray worker failed \(RayError: the worker died\)"):
        oracle.scores(["CCCC"])
    oracle.close()


@pytest.mark.parametrize(
    ("failure", "sentence"),
    [
        (GetTimeoutError(), "the Ray cluster gave no answer within 600 s"),
        (RayTaskError("Traceback:\n  call\nModuleNotFoundError: No module named 'stochflow'\n"), "No module named"),
        (ConnectionError("gone"), "its Ray worker failed .ConnectionError: gone"),
    ],
)
def test_a_cluster_that_cannot_begin_is_said_at_the_start(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, sentence: str
) -> None:
    ray = pretend(monkeypatch, failure)
    with pytest.raises(OracleError, match=f"the oracle 'lab:good' cannot be used: .*{sentence}"):
        RayClient("lab:good", 20.0, RayCluster(1, None)).start()
    assert ray.cancelled == isinstance(failure, GetTimeoutError)


def test_a_cluster_that_only_a_file_names_is_not_joined(lab: Path, tmp_path: Path) -> None:
    oracle = {"engine": "ray", "address": "stranger:6379"}
    with pytest.raises(ConfigError, match=r"'stranger:6379' is joined only when you name it.*add --address stranger"):
        train(tmp_path / "run", "lab:good", config=TINY | {"oracle": oracle})
    assert not (tmp_path / "run").exists()
    run = train(tmp_path / "run", "lab:good", oracle_calls=16)
    config = run.config.model_copy(update={"oracle": run.config.oracle.model_copy(update=oracle)})
    run.directory.rewrite_config(config)
    again = stochflow.load(run.path, "lab:good")
    with pytest.raises(ConfigError, match="joined only when you name it yourself"):
        again.sample(5, score_samples=True)
    with pytest.raises(ConfigError, match="joined only when you name it yourself"):
        stochflow.train(out=run.path, resume=True, oracle="lab:good", oracle_calls=50)
    assert len(stochflow.sample(run.path, 5)) == 5  # which asks nobody
    assert (
        stochflow.evaluate(run.path, oracle="lab:good", oracle_engine="local", score_samples=True).scored_fraction == 1
    )
    command = train_command(config, "there")
    assert "--address stranger:6379" in command
    assert "oracle.engine=ray" in command
    assert "oracle.address" not in command


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"address": "127.0.0.1:6379"}, "add --oracle-engine ray, or leave it away"),
        ({"oracle_engine": "dask"}, "oracle.engine"),
        ({"oracle_engine": "ray", "address": "127.0.0.1:1"}, "no Ray cluster answers at 127.0.0.1:1 "),
        ({"oracle_engine": "ray", "oracle": lambda designs: designs}, "put it into a module"),
        ({"oracle_engine": "ray", "oracle": None, "length": None, "alphabet": None}, "the task is 'tfbind8'"),
        ({"address": "127.0.0.1:1", "oracle": None}, "name the oracle by --oracle"),
    ],
)
def test_what_cannot_be_called_there_is_refused_before_anything_is_made(
    lab: Path, tmp_path: Path, options: dict[str, Any], sentence: str
) -> None:
    given: dict[str, Any] = {"config": TINY, "length": 8, "alphabet": "dna", "oracle": "lab:good"} | options
    with pytest.raises(ConfigError, match=sentence):
        stochflow.train(out=tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


def test_a_comparison_spreads_runs_and_not_calls(lab: Path, tmp_path: Path) -> None:
    settings = ["oracle.length=8", "oracle.alphabet=dna", "oracle.engine=ray"]
    with pytest.raises(ConfigError, match=r"leave out oracle\.engine and give --engine ray"):
        stochflow.compare(oracle=["lab:good"], settings=settings, seeds=1, out=tmp_path / "sweep")
