"""The command line as functions: same names, same defaults, same results."""

import inspect
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import stochflow
from stochflow import api
from stochflow.cli import app as cli
from stochflow.config.noise import parse_noise
from stochflow.config.schema import Config
from stochflow.core.errors import ConfigError, DataError
from stochflow.environments.settings import resolve_layers
from stochflow.evaluation.summary import Summary
from stochflow.experiments import launch

TINY = ("optimiser.batch_size=16", "optimiser.updates=2", "model.width=16", "evaluation.num_samples=50")
COLUMNS = ["sequence", "intended", "score", "log_reward", "log_prob"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> stochflow.Run:
    """A run of three steps; to be read, not changed."""
    path = tmp_path_factory.mktemp("run") / "run"
    return stochflow.train("tfbind8", method="sgfn-kl-bootstrap", noise=0.1, steps=3, settings=TINY, out=path)


def defaults(function: Any, renamed: dict[str, str] | None = None) -> dict[str, Any]:
    """Default by parameter name, with the names of the API."""
    parameters = inspect.signature(function).parameters.values()
    return {(renamed or {}).get(parameter.name, parameter.name): parameter.default for parameter in parameters}


def test_a_run_tells_what_was_reached(run: stochflow.Run) -> None:
    summary = run.summary
    assert isinstance(summary, Summary)
    assert (summary.task, summary.method, summary.noise, summary.seed) == ("tfbind8", "sgfn-kl-bootstrap", 0.1, 0)
    assert (summary.steps, summary.trajectories, summary.status) == (3, 48, "finished")
    assert summary.regret is not None
    assert summary.kl is not None
    assert summary.min_kl is not None
    assert summary.regret == pytest.approx(summary.kl - summary.min_kl, abs=1e-12)
    assert round(summary.min_kl, 5) == 0.00026
    assert run.config.channel.noise == 0.1


def test_metrics_are_a_table_with_one_row_per_step(run: stochflow.Run) -> None:
    metrics = run.metrics
    assert metrics["step"].tolist() == [1, 2, 3]
    assert metrics["trajectories"].tolist() == [16, 32, 48]
    assert {"seconds", "learning_rate", "oracle_calls", "beta", "batch_score", "loss", "kl_loss", "regret"} <= set(
        metrics
    )
    assert metrics["loss"].notna().all()
    assert metrics["regret"].iloc[-1] == run.summary.regret


def test_designs_are_a_table(run: stochflow.Run) -> None:
    frame = run.sample(10)
    assert list(frame.columns) == COLUMNS
    assert len(frame) == 10
    assert frame["sequence"].str.fullmatch("[ACGT]{8}").all()
    assert frame["score"].between(0, 1).all()
    assert (frame["log_prob"] < 0).all()
    task = run.experiment().environment.task
    assert frame["score"].tolist() == task.score(task.alphabet.encode(frame["sequence"].tolist())).tolist()


def test_the_designs_of_the_summary_are_drawn_again(run: stochflow.Run) -> None:
    written = pd.read_csv(run.path / "samples.csv")
    pd.testing.assert_frame_equal(run.sample(50), written, check_exact=False, atol=1e-12)


def test_more_designs_than_one_chunk_are_all_there(run: stochflow.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stochflow.experiments.draws._CHUNK", 7)
    frame = run.sample(20)
    assert len(frame) == 20
    assert frame.index.tolist() == list(range(20))
    unique = run.sample(20, unique=True)
    assert len(unique) == 20
    assert unique["sequence"].is_unique
    assert unique.index.tolist() == list(range(20))


def test_unique_designs_end_when_there_are_no_others(run: stochflow.Run) -> None:
    committed = stochflow.load(run.path)
    with torch.no_grad():
        committed.experiment().network.policy_head.bias += torch.tensor([100.0, 0.0, 0.0, 0.0])
    frame = committed.sample(5, unique=True, noise="none")
    assert frame["sequence"].tolist() == ["AAAAAAAA"]


def test_a_design_has_the_probability_of_its_channel(run: stochflow.Run) -> None:
    quiet = run.sample(200, noise="none")
    assert (quiet["sequence"] == quiet["intended"]).all()
    noisy = run.sample(200, noise=0.9).set_index("sequence")["log_prob"]
    # under heavy noise every sequence is almost equally likely
    assert noisy.std() < quiet["log_prob"].std()


@pytest.mark.parametrize("n", [0, -1])
def test_a_number_of_designs_below_one_is_refused(n: int, run: stochflow.Run) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        run.sample(n)


def test_a_run_a_path_and_its_text_mean_the_same(run: stochflow.Run) -> None:
    expected = run.sample(5, seed=3)
    for handle in (run, run.path, str(run.path)):
        pd.testing.assert_frame_equal(stochflow.sample(handle, 5, seed=3), expected)
        assert stochflow.load(handle).path == run.path


def test_evaluating_again_gives_the_summary(run: stochflow.Run) -> None:
    assert stochflow.evaluate(run.path) == run.summary
    assert stochflow.evaluate(run) == run.summary


def test_evaluating_under_another_noise_changes_what_depends_on_it(run: stochflow.Run) -> None:
    there = run.evaluate(noise="none")
    assert there.noise == 0.0
    assert there.min_kl == pytest.approx(0.0, abs=1e-9)
    assert there.dynamics_ce_floor == pytest.approx(0.0, abs=1e-9)
    assert there.kl != run.summary.kl
    assert run.evaluate() == run.summary  # the run itself is as it was


def test_a_reference_file_gives_the_novelty(tmp_path: Path) -> None:
    reference = tmp_path / "known.txt"
    reference.write_text("AAAAAAAA\n", encoding="utf-8")
    run = stochflow.train(
        method="sgfn-kl-trajectory",
        steps=1,
        settings=(*TINY, f"evaluation.reference={reference}"),
        out=tmp_path / "run",
    )
    distances = [sum(letter != "A" for letter in sequence) for sequence in run.sample(50)["sequence"]]
    assert run.summary.novelty == pytest.approx(sum(distances) / 50)
    # the run has its own copy, and a config that names another file is not believed
    reference.unlink()
    assert run.evaluate() == run.summary
    text = (run.path / "config.yaml").read_text(encoding="utf-8")
    forged = text.partition("\n")[2].replace("reference: reference.txt", "reference: /etc/passwd")
    (run.path / "config.yaml").write_text(forged)  # without its checksum
    assert stochflow.evaluate(run.path) == run.summary
    reference.write_text("CCCCCCCC\n", encoding="utf-8")
    again = stochflow.train(out=run.path, resume=True, steps=2, settings=[f"evaluation.reference={reference}"])
    assert (run.path / "reference.txt").read_text(encoding="utf-8") == "CCCCCCCC\n"
    assert again.evaluate() == again.summary


def test_exact_needs_no_training() -> None:
    found = stochflow.exact(noise=0.5, beta=3.0)
    assert list(found) == [
        *("task", "noise", "beta", "floor", "min_kl", "min_tv", "attainable_score", "log_z_true", "infeasible_share")
    ]
    assert round(found["min_kl"], 5) == 0.02455
    assert len(found["infeasible_share"]) == 8
    assert stochflow.exact(noise="none")["min_kl"] == pytest.approx(0.0, abs=1e-9)


def test_a_config_may_be_a_dictionary_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class ReachedError(Exception):
        pass

    def build(config: Config, *_: object, **__: object) -> None:
        raise ReachedError(config)

    monkeypatch.setattr("stochflow.experiments.launch.build", build)
    file = tmp_path / "config.yaml"
    file.write_text("seed: 5\nreward: {beta: 2}\n", encoding="utf-8")
    found = []
    for config in ({"seed": 5, "reward": {"beta": 2}}, file, str(file)):
        with pytest.raises(ReachedError) as caught:
            stochflow.train(config=config, out=tmp_path / "run")
        found.append(caught.value.args[0])
    assert found[0] == found[1] == found[2]
    assert (found[0].seed, found[0].reward.beta) == (5, 2.0)


def test_an_argument_that_is_wrong_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    for arguments in ({"steps": 1, "minutes": 1}, {"noise": 1}, {"method": "none"}, {"device": "quantum"}):
        with pytest.raises(ConfigError):
            stochflow.train(out=tmp_path / "new" / "run", **arguments)  # type: ignore[arg-type]
    with pytest.raises(DataError):
        stochflow.load(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "tfbind8-sgfn-kl-0.25-seed0"),
        ({"task": "tfbind8:ARX"}, "tfbind8-ARX-sgfn-kl-0.25-seed0"),
        ({"channel": {"kind": "none"}}, "tfbind8-sgfn-kl-none-seed0"),
        ({"channel": parse_noise("0.1,0.2"), "seed": 3}, "tfbind8-sgfn-kl-positional-0.1-0.2-seed3"),
        ({"channel": parse_noise("/a/b.csv"), "method": "sgfn-db"}, "tfbind8-sgfn-db-b-seed0"),
    ],
)
def test_a_run_is_named_after_what_it_is(settings: dict[str, Any], name: str) -> None:
    assert launch.default_path(resolve_layers([settings])) == Path("runs") / name


def test_different_channels_have_different_names() -> None:
    noises = ["0.05", "dna-synthesis:0.05", "none", "dna-synthesis", ",".join(["0.05"] * 8)]
    paths = {launch.default_path(launch.resolve_config([{"channel": parse_noise(noise)}])) for noise in noises}
    assert len(paths) == len(noises)


def test_train_takes_the_options_of_the_command_line() -> None:
    command = defaults(cli.train)
    function = defaults(api.train)
    assert command.pop("all_figures") is False  # what is printed at the end
    assert function.pop("listen") is None  # the command line draws its progress bar with it
    assert function.pop("stop") is None  # and stops at Ctrl-C
    for repeatable in ("settings", "track"):
        assert function.pop(repeatable) == ()
        assert command.pop(repeatable) is None
    # one argument of the function, one flag for each rule
    assert function.pop("constraints") is None
    rules = [command.pop(rule) for rule in ("forbid", "gc", "fixed", "max_homopolymer", "symmetric")]
    assert not any(rules)
    assert list(command) == list(function)
    assert command == function


def test_compare_takes_the_options_of_the_command_line() -> None:
    command = defaults(cli.compare)
    function = defaults(stochflow.compare)
    assert function.pop("listen") is None
    assert command.pop("as_json") is False
    for repeatable in ("settings", "track", "oracle"):
        assert function.pop(repeatable) == ()
        assert command.pop(repeatable) is None
    assert list(command) == list(function)
    assert command == function


def test_sample_evaluate_and_exact_take_the_options_of_the_command_line() -> None:
    command = defaults(cli.sample)
    for printed_only in ("run", "style", "out"):
        command.pop(printed_only)
    of_oracle = {name: defaults(api.sample)[name] for name in ("oracle", "oracle_engine", "address")}
    function = defaults(api.Run.sample) | of_oracle
    function.pop("self")
    assert command == function

    assert set(defaults(cli.doctor)) - {"as_json"} == set(defaults(api.doctor))
    assert set(defaults(cli.evaluate)) - {"as_json"} == set(defaults(api.evaluate))
    command, function = defaults(cli.exact), defaults(api.exact)
    assert (command.pop("as_json"), command.pop("settings"), function.pop("settings")) == (False, None, ())
    assert function.pop("constraints") is None
    rules = [command.pop(rule) for rule in ("forbid", "gc", "fixed", "max_homopolymer", "symmetric")]
    assert not any(rules)
    assert list(command) == list(function)
    assert command == function


def test_the_defaults_in_the_help_are_the_ones_in_use() -> None:
    config = launch.resolve_config([])
    actual = {
        "task": config.task,
        "method": config.method,
        "noise": config.channel.noise,
        "feedback": config.feedback,
        "oracle_engine": config.oracle.engine,
        "seed": config.seed,
        "trajectories": config.budget.trajectories,
        "device": config.device,
        "sequence_column": config.table.sequence_column,
        "score_column": config.table.score_column,
    }
    stated = {}
    for name, parameter in inspect.signature(cli.train).parameters.items():
        for extra in getattr(parameter.annotation, "__metadata__", ()):
            found = re.search(r"\[default: ([\w.-]+)[];]", extra.help or "")
            if found:
                stated[name] = found.group(1)
    absent = {name for name, value in stated.items() if value == "none"}
    assert not any(defaults(cli.train)[name] for name in absent)
    assert {name: stated[name] for name in stated.keys() - absent} == {
        name: str(value) for name, value in actual.items()
    }


def test_everything_public_is_there() -> None:
    assert all(hasattr(stochflow, name) for name in stochflow.__all__)
    assert {"train", "sample", "evaluate", "exact", "load", "Run"} <= set(stochflow.__all__)
