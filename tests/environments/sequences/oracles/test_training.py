"""A user's function as a task: trained, resumed, sampled, and never paid twice."""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import stochflow
from stochflow import api
from stochflow.cli import app as cli
from stochflow.core.errors import ConfigError, OracleError
from stochflow.environments.sequences.oracles.cache import ScoreCache
from stochflow.environments.sequences.oracles.task import CACHE, function_name
from stochflow.environments.sequences.task import Task
from stochflow.environments.sequences.tfbind8 import TFBind8

TINY: dict[str, Any] = {
    "method": "sgfn-db",
    "model": {"width": 16},
    "optimiser": {"batch_size": 16, "updates": 2},
    "dynamics": {"rounds": 1},
    "evaluation": {"num_samples": 30},
    "oracle": {"backoff": 0.0, "retries": 0, "timeout": 30.0},
    "checkpoint_every": 0.01,
}


def asked(lab: Path) -> list[str]:
    path = lab / "calls.txt"
    return [line.split()[1] for line in path.read_text().splitlines()] if path.exists() else []


def train(out: Path, oracle: Any = "lab:good", **options: Any) -> api.Run:
    given = {"config": TINY, "length": 8, "alphabet": "ACGT", "oracle_calls": 40} | options
    return stochflow.train(oracle=oracle, out=out, **given)


def resume(out: Path, **options: Any) -> api.Run:
    return stochflow.train(out=out, resume=True, **options)


def comparable(run: api.Run) -> pd.DataFrame:
    return run.metrics.drop(columns="seconds")


def test_a_budget_of_calls_is_spent_to_the_last_and_not_beyond(lab: Path, tmp_path: Path) -> None:
    run = train(tmp_path / "run")
    assert len(asked(lab)) == len(set(asked(lab))) == 40 == run.summary.oracle_calls
    assert (run.summary.task, run.summary.status, run.summary.regret) == ("oracle:lab:good", "finished", None)
    assert run.metrics["oracle_calls"].is_monotonic_increasing
    # drawing and looking cost nothing, and say what is not known
    frame = run.sample(30)
    known = frame["sequence"].isin(asked(lab))
    assert (frame["score"].notna() == known).all()
    assert run.summary.scored_fraction < 1.0
    assert run.evaluate().scored_fraction == run.summary.scored_fraction
    page = stochflow.report(run.path).read_text(encoding="utf-8")
    assert "designs have no score" in page
    assert len(asked(lab)) == 40
    # unless it is wished
    paid = run.sample(30, score_samples=True)
    assert paid["score"].notna().all()
    assert len(asked(lab)) == len(set(asked(lab))) > 40
    assert run.evaluate(score_samples=True).scored_fraction == 1.0


def test_samples_are_scored_at_the_end_when_asked_for(lab: Path, tmp_path: Path) -> None:
    run = train(tmp_path / "run", score_samples=True)
    assert pd.read_csv(run.path / "samples.csv")["score"].notna().all()
    assert (run.summary.scored_fraction, run.summary.oracle_calls) == (1.0, 40)
    assert run.summary.mean_score is not None


@pytest.mark.parametrize("name", ["raises", "nan", "dies"])
def test_after_a_failure_nothing_is_paid_again_and_resume_goes_on(lab: Path, tmp_path: Path, name: str) -> None:
    whole = train(tmp_path / "whole")
    (lab / "calls.txt").unlink()
    out = tmp_path / "run"
    with pytest.raises(OracleError, match=r"failed on the design CC.*--resume"):
        train(out, f"lab:{name}", length=8)
    before = asked(lab)
    source = (lab / "lab.py").read_text()
    (lab / "lab.py").write_text(source + f"\n{name} = good\n")
    run = resume(out, oracle=f"lab:{name}")
    assert run.summary.status == "finished"
    assert run.summary.oracle_calls == 40
    paid = asked(lab)[len(before) :]
    kept = ScoreCache(out / CACHE, f"lab:{name}", "").get(asked(lab))
    assert len(kept) == 40
    assert len(paid) == len(set(paid))
    # the same run as one that nothing ever happened to
    pd.testing.assert_frame_equal(comparable(run), comparable(whole))


def test_a_kill_between_checkpoints_loses_no_score(lab: Path, tmp_path: Path) -> None:
    whole = train(tmp_path / "whole")
    (lab / "calls.txt").unlink()
    out = tmp_path / "run"

    def break_off(record: dict[str, float], progress: float) -> None:
        if record["step"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(out, config=TINY | {"checkpoint_every": 1.0}, listen=break_off)
    assert len(asked(lab)) > 16
    run = resume(out, oracle="lab:good")
    assert len(asked(lab)) == len(set(asked(lab))) == 40
    pd.testing.assert_frame_equal(comparable(run), comparable(whole))


def test_runs_that_share_a_cache_pay_once_and_free_designs_do_not_count(lab: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared.sqlite"
    first = train(tmp_path / "first", oracle_cache=shared)
    assert not (first.path / CACHE).exists()
    assert first.config.oracle.cache == str(shared)
    second = train(tmp_path / "second", oracle_cache=shared, seed=0)
    assert len(asked(lab)) == len(set(asked(lab))) == 80
    assert second.summary.oracle_calls == 40
    assert second.summary.trajectories > first.summary.trajectories


def test_overwriting_a_run_keeps_what_it_paid_for(lab: Path, tmp_path: Path) -> None:
    train(tmp_path / "run", steps=2, oracle_calls=None)
    num_asked = len(asked(lab))
    again = train(tmp_path / "run", steps=2, oracle_calls=None, overwrite=True)
    assert len(asked(lab)) == num_asked > 0
    assert again.summary.oracle_calls == 0


def test_a_space_smaller_than_the_budget_ends_with_a_warning(lab: Path, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="16 of 40 oracle calls, because 100 steps in a row brought no new design"):
        run = train(tmp_path / "run", length=4, alphabet="AC")
    assert run.summary.status == "finished"
    assert run.summary.oracle_calls == len(asked(lab)) == 16


def test_nothing_of_the_size_of_a_long_space_is_made(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("all_sequences", "all_scores"):
        monkeypatch.setattr(Task, name, property(lambda self: pytest.fail("enumerated")))
    options = {"method": "sgfn-kl", "constraints": {"forbid": ["GAATTC"], "gc": [0.4, 0.6], "max_homopolymer": 4}}
    small = {"updates": 2, "rows": 16, "num_chains": 8, "num_repairs": 8, "moves": 5}
    run = train(tmp_path / "run", length=50, config=TINY | {"imagination": small}, **options)
    assert run.summary.oracle_calls == 40
    assert run.sample(5)["sequence"].str.len().eq(50).all()
    assert run.evaluate().kl is None
    assert stochflow.report(run.path).exists()


def test_looking_at_a_run_never_imports_its_function(lab: Path, tmp_path: Path) -> None:
    run = train(tmp_path / "run")
    (lab / "lab.py").write_text("raise RuntimeError('this must not run')")
    looked = stochflow.load(run.path)
    assert len(looked.sample(5)) == 5
    assert looked.evaluate().oracle_calls == 40
    stochflow.report(run.path)
    with pytest.raises(OracleError, match="this must not run"):
        stochflow.load(run.path, "lab:good").sample(30, score_samples=True)


def test_code_that_only_a_file_names_does_not_run(lab: Path, tmp_path: Path) -> None:
    run = train(tmp_path / "run")
    before = len(asked(lab))
    config = TINY | {"task": "oracle:lab:good", "oracle": {"length": 8, "alphabet": "dna"}}
    add_it = "runs only when you name it yourself; if you trust it, add --oracle lab:good"
    for use in (
        lambda: resume(run.path, oracle_calls=50),
        lambda: stochflow.sample(run.path, 30, score_samples=True),
        lambda: stochflow.evaluate(run.path, score_samples=True),
        lambda: stochflow.train(config=config, out=tmp_path / "other"),
        lambda: stochflow.train("oracle:lab:good", length=8, alphabet="dna", out=tmp_path / "other"),
        lambda: stochflow.compare(
            ["oracle:lab:good"], settings=["oracle.length=8", "oracle.alphabet=dna"], out=tmp_path / "sweep"
        ),
    ):
        with pytest.raises(ConfigError, match=add_it):
            use()
    with pytest.raises(ConfigError, match="the oracle is 'lab:good', and --oracle names 'lab:nan'"):
        stochflow.sample(run.path, 30, score_samples=True, oracle="lab:nan")
    assert len(asked(lab)) == before
    assert not (tmp_path / "other").exists()
    assert not (tmp_path / "sweep").exists()
    assert stochflow.sample(run.path, 30, score_samples=True, oracle="lab:good")["score"].notna().all()


def test_a_shared_cache_that_only_a_run_names_is_not_read(lab: Path, tmp_path: Path) -> None:
    run = train(tmp_path / "run", oracle_cache=tmp_path / "shared.sqlite")
    run.sample(30, score_samples=True)
    assert run.sample(30)["score"].notna().all()
    with pytest.warns(UserWarning, match=r"scores in .*shared\.sqlite are left out.* add --oracle lab:good"):
        assert stochflow.sample(run.path, 30)["score"].isna().all()


def test_a_comparison_asks_the_oracles_that_are_named(lab: Path, tmp_path: Path) -> None:
    design = ["oracle.length=8", "oracle.alphabet=dna", "optimiser.batch_size=16", "optimiser.updates=2"]
    design += ["model.width=16", "dynamics.rounds=1", "evaluation.num_samples=30"]
    options = {"methods": ["sgfn-db"], "seeds": 1, "trajectories": 32, "jobs": 1, "out": tmp_path / "sweep"}
    found = stochflow.compare(oracle=["lab:good"], settings=design, **options)
    assert (found.failures, found.missing) == ({}, [])
    with pytest.raises(ConfigError, match="add --oracle lab:good"):
        stochflow.compare(out=tmp_path / "sweep")


def test_functions_without_a_name_run_inside_and_their_runs_resume_with_them(tmp_path: Path) -> None:
    calls: list[str] = []

    def share_of_a(designs: list[str]) -> list[float]:
        calls.extend(designs)
        return [design.count("A") / len(design) for design in designs]

    assert function_name(share_of_a)[1] is False
    run = train(tmp_path / "run", share_of_a, oracle_calls=20)
    assert len(calls) == len(set(calls)) == 20
    assert resume(run.path, oracle=share_of_a, oracle_calls=25).summary.oracle_calls == 25
    assert len(calls) == len(set(calls)) == 25
    with pytest.raises(ConfigError, match="only when you name it yourself"):
        resume(run.path, oracle_calls=30)
    for options in ({"oracle_cache": tmp_path / "c"}, {"settings": ["oracle.workers=2"]}):
        with pytest.raises(ConfigError, match="put it into a module"):
            train(tmp_path / "other", share_of_a, **options)


def test_functions_with_a_name_are_known_by_it() -> None:
    assert function_name(json.dumps) == ("json:dumps", True)
    assert function_name(lambda designs: [])[1] is False
    assert function_name(TFBind8())[1] is False


def test_a_budget_of_calls_holds_for_any_task(tmp_path: Path) -> None:
    run = stochflow.train(config=TINY, oracle_calls=70, out=tmp_path / "run")
    noisy = stochflow.train(config=TINY, oracle_calls=70, reward_noise="replicate", out=tmp_path / "noisy")
    assert run.summary.oracle_calls == noisy.summary.oracle_calls == noisy.summary.trajectories == 70
    assert run.summary.regret is not None
    torch.testing.assert_close(run.metrics["oracle_calls"].iloc[-1], 70)


def test_a_comparison_with_an_oracle_that_is_missing_makes_no_run(lab: Path, tmp_path: Path) -> None:
    design = ["oracle.length=8", "oracle.alphabet=dna"]
    with pytest.raises(stochflow.StochflowError, match="has no 'missing'"):
        stochflow.compare(oracle=["lab:missing"], settings=design, seeds=1, out=tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"length": None}, "give --length L and --alphabet"),
        ({"alphabet": None}, "give --length L and --alphabet"),
        ({"length": 0}, "oracle.length"),
        ({"alphabet": "A"}, "has 1 letters"),
        ({"alphabet": "ACCA"}, "the letter 'A' twice"),
        ({"alphabet": "A C"}, "cannot be seen"),
        ({"oracle_calls": 0}, "budget.oracle_calls"),
        ({"steps": 3}, "exactly one of trajectories, steps, minutes and oracle_calls"),
        ({"task": "tfbind8"}, "leave out 'tfbind8'"),
        ({"table": "scores.csv"}, "there is a table, but the task is 'oracle:lab:good'"),
        ({"reward_noise": "gaussian:0.1"}, "leave out the reward noise"),
        ({"oracle": "lab"}, "not of the form package.module:function"),
        ({"oracle": "lab:missing"}, "has no 'missing'"),
        ({"oracle_cache": "/dev/null/x"}, "oracle cache /dev/null/x cannot be used"),
        ({"settings": ["oracle.timeout=0"]}, "oracle.timeout"),
        ({"settings": ["oracle.retries=-1"]}, "oracle.retries"),
        ({"settings": ["oracle.workers=0"]}, "oracle.workers"),
        ({"settings": ["oracle.batch_size=0"]}, "oracle.batch_size"),
    ],
)
def test_bad_options_are_refused_before_anything_is_made(
    lab: Path, tmp_path: Path, options: dict[str, Any], sentence: str
) -> None:
    task = options.pop("task", None)
    given = {"config": TINY, "length": 8, "alphabet": "dna", "oracle_calls": 40, "oracle": "lab:good"} | options
    with pytest.raises(stochflow.StochflowError, match=sentence):
        stochflow.train(task, out=tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()
    assert asked(lab) == []


def test_the_command_line_says_it_in_one_sentence(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # put back what the command line replaces
    monkeypatch.chdir(tmp_path)
    tiny = ["optimiser.batch_size=16", "optimiser.updates=2", "model.width=16", "evaluation.num_samples=20"]
    tiny += ["dynamics.rounds=1", "imagination.updates=2", "imagination.num_chains=8", "imagination.moves=5"]
    words = [word for text in [*tiny, "oracle.retries=0"] for word in ("--set", text)]

    def call(*arguments: str) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", ["stochflow", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return caught.value.code, " ".join(capsys.readouterr().err.split())

    design = ["--length", "8", "--alphabet", "dna", "--oracle-calls", "30", *words]
    rules = ["--forbid", "GAATTC,TTT", "--gc", "0.25:0.75", "--fixed", "A.......", "--max-homopolymer", "3"]
    code, err = call("train", "--oracle", "lab:good", *design, *rules, "--noise", "none", "--out", "r")
    assert code == 0
    assert "were never paid for and have no score (NaN)" in err
    assert all(text.startswith("A") and "TTT" not in text for text in asked(lab))
    code, err = call("sample", "r", "-n", "20", "--score-samples", "--oracle", "lab:good")
    assert (code, err) == (0, "")
    code, err = call("train", "--oracle", "lab:raises", *design, "--out", "bad")
    assert code == 2
    assert err.startswith("Error: the oracle 'lab:raises' failed on the design CC")
    for flags, sentence in (
        (["--gc", "0.5"], "--gc takes LOW:HIGH"),
        (["--gc", "0.7:0.2"], "the smaller first"),
        (["--fixed", "AC"], "has 2 positions but a design has 8"),
        (["--forbid", "A,C,G,T"], "no sequence of length 8"),
        (["--max-homopolymer", "0"], "max_homopolymer"),
        (["--fixed", "A......A", "--symmetric"], "no sequence of length 8"),
    ):
        code, err = call("train", "--oracle", "lab:good", *design, *flags, "--out", "odd")
        assert code == 2
        assert sentence in err
