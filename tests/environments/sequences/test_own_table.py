"""From a table of one's own to a run that keeps it, and where methods go when its measurements are noisy."""

import math
import shutil
from pathlib import Path

import pytest
import torch
from scipy.optimize import minimize_scalar

import stochflow
from stochflow import api
from stochflow.config.schema import LossShape
from stochflow.core.errors import ConfigError, DataError
from stochflow.environments.factory import TABLE_COPY
from stochflow.experiments import launch
from stochflow.objectives.path_terms import REWARD_MEANS
from stochflow.objectives.regression_losses import shaped

# aa is measured as 0.1 or 1, the others always as 0.5; ba is missing
TABLE_TEXT = "name,seq,one,two\nx,aa,0.1,1.0\ny,ab,0.5,0.5\nz,bb,0.5,0.5\n"
QUICK = {
    "reward": {"beta": 1.0, "floor": 0.05},
    "model": {"kmers": [1, 2], "width": 16, "num_layers": 1},
    "channel": {"kind": "none"},
    "evaluation": {"num_samples": 50},
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "own.csv"
    path.write_text(TABLE_TEXT, encoding="utf-8")
    return path


def train(table: Path, **options: object) -> api.Run:
    given = {"sequence_column": "seq", "score_column": "one,two", "alphabet": "ab", "config": QUICK, "steps": 2}
    given["gap_score"] = 0.0
    return stochflow.train(table=table, out=table.parent / "run", **given | options)  # type: ignore[arg-type]


def test_a_run_lives_on_its_own_copy_of_the_table(table: Path, tmp_path: Path) -> None:
    run = train(table)
    assert run.summary.task == "own"
    table.unlink()
    moved = tmp_path / "moved"
    shutil.move(run.path, moved)
    again = api.Run(moved)
    assert set(again.sample(50)["sequence"]) <= {"aa", "ab", "ba", "bb"}
    assert again.evaluate().kl is not None
    stochflow.train(out=moved, resume=True, steps=3)
    assert api.Run(moved).summary.steps == 3
    assert stochflow.report(moved).exists()


def test_a_run_with_noise_goes_on_with_it_without_being_told(table: Path) -> None:
    quiet = {name: value for name, value in QUICK.items() if name != "channel"}
    assert train(table, noise=0.25, config=quiet).summary.noise == 0.25
    assert train(table, config=quiet, steps=3, resume=True).summary.noise == 0.25
    assert train(table, config=quiet, overwrite=True).summary.noise == 0.0


def test_excluded_designs_are_spelled_as_in_the_table(table: Path) -> None:
    run = train(table)
    assert sorted(run.sample(best=1, exclude=["aa", "ab", "ba"])["sequence"]) == ["bb"]
    with pytest.raises(DataError, match="exclude: letters"):
        run.sample(best=1, exclude=["AA"])


def test_a_copy_that_was_changed_is_refused(table: Path) -> None:
    run = train(table)
    copy = run.path / TABLE_COPY
    copy.write_text(copy.read_text(encoding="utf-8").replace("0.5", "0.6"), encoding="utf-8")
    for use in (stochflow.sample, stochflow.evaluate):
        with pytest.raises(DataError, match="has changed since training began"):
            use(run.path)
    with pytest.raises(DataError, match="has changed since training began"):
        stochflow.train(out=run.path, resume=True, steps=3)


def test_resuming_with_the_table_again_works_until_it_says_something_else(table: Path) -> None:
    train(table)
    table.write_text(TABLE_TEXT.replace("x,", "other name,"), encoding="utf-8")
    assert train(table, resume=True, steps=3).summary.steps == 3
    table.write_text(TABLE_TEXT.replace("0.1", "0.2"), encoding="utf-8")
    with pytest.raises(DataError, match=r"own.csv has changed since training began"):
        train(table, resume=True, steps=4)


def test_a_resumed_noisy_run_goes_on_as_if_never_stopped(table: Path, tmp_path: Path) -> None:
    whole = train(table, reward_noise="replicate", steps=4)
    kept = whole.metrics.drop(columns="seconds")
    parted = train(table, reward_noise="replicate", steps=4, overwrite=True, stop=iter([False, False, True]).__next__)
    assert parted.summary.steps == 2
    parted = train(table, reward_noise="replicate", steps=4, resume=True)
    assert parted.metrics.drop(columns="seconds").equals(kept)


def test_every_noisy_visit_is_an_oracle_call(table: Path) -> None:
    assert train(table, trajectories=100, steps=None, reward_noise="replicate").summary.oracle_calls == 100
    assert train(table, trajectories=100, steps=None, overwrite=True).summary.oracle_calls <= 4


def test_the_truth_of_a_noisy_table_is_the_mean_reward(table: Path) -> None:
    summary = train(table, reward_noise="replicate").summary
    assert summary.log_z_true == pytest.approx(math.log(0.55 + 0.5 + 0.5 + 0.05))
    assert (summary.reward_noise, summary.reward_mean) == ("replicate", "E[R]")
    assert train(table, overwrite=True).summary.reward_mean is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "tfbind8"}, "there is a table, but the task is 'tfbind8'"),
        ({"score_column": " , "}, "score_column is empty"),
        ({"settings": ["reward.floor=2"]}, "not above reward.floor"),
        ({"settings": ["reward.beta=1000", "table.scale=none"], "score_column": "two"}, None),
    ],
)
def test_settings_that_do_not_fit_a_table_are_refused(table: Path, options: dict[str, object], message: str) -> None:
    if message is None:
        assert train(table, **options).summary.beta == 1000
        return
    with pytest.raises(ConfigError, match=message):
        train(table, **options)
    assert not (table.parent / "run").exists()


def test_the_table_task_needs_a_file() -> None:
    with pytest.raises(ConfigError, match="needs a file; give one with --table"):
        stochflow.train("table")


def test_the_optimum_of_a_table_is_known_before_training(table: Path) -> None:
    columns = {"sequence_column": "seq", "score_column": "one,two", "alphabet": "ab", "gap_score": 0.0}
    settings = ["reward.beta=1.0", "reward.floor=0.05"]
    found = stochflow.exact(table=table, noise=0.3, settings=settings, **columns)  # type: ignore[arg-type]
    summary = train(table, noise=0.3).summary
    assert (found["task"], found["noise"]) == ("own", 0.3)
    for name in ("min_kl", "min_tv", "attainable_score", "log_z_true"):
        assert found[name] == getattr(summary, name)
    constrained = stochflow.exact(table=table, settings=settings, constraints={"forbid": ["bb"]}, **columns)  # type: ignore[arg-type]
    assert constrained["log_z_true"] == pytest.approx(math.log(0.55 + 0.5 + 2 * 0.05))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sequence_column": "seq"}, "but no table; name its file with --table"),
        ({"alphabet": "dna", "settings": ["table.name=x"]}, "but no table; name its file with --table"),
        ({"settings": ["oracle.length=5"]}, "say what designs of an oracle are, and the task is 'tfbind8'"),
    ],
)
def test_what_describes_a_table_or_an_oracle_needs_one(options: dict[str, object], message: str) -> None:
    for use in (stochflow.exact, stochflow.train):
        with pytest.raises(ConfigError, match=message):
            use(**options)  # type: ignore[operator]


def test_an_oracle_has_no_optimum_that_could_be_computed() -> None:
    with pytest.raises(ConfigError, match="train it instead"):
        stochflow.exact("oracle:math:sqrt")


def test_resuming_with_other_letters_is_refused_as_another_table(table: Path) -> None:
    run = train(table)
    with pytest.raises(ConfigError, match="started with another 'table'"):
        stochflow.train(out=run.path, resume=True, alphabet="abc", steps=3)
    assert stochflow.train(out=run.path, resume=True, alphabet="ab", steps=3).summary.steps == 3


def test_a_table_with_more_possible_designs_than_a_float_can_count_is_trained_on(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text(f"sequence,score\n{'ACGT' * 150},1\n{'TTTT' * 150},2\n", encoding="utf-8")
    with pytest.warns(UserWarning, match=r"scores for 2 of more than 1e\+300 possible sequences"):
        launch.prepare([QUICK, {"task": "table", "table": {"file": str(path), "gap_score": 0.0}}]).environment.warn()


def test_a_table_that_knows_next_to_nothing_comes_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "sparse.csv"
    path.write_text("sequence,score\nACGTACGT,1\nTTTTTTTT,2\n", encoding="utf-8")
    with pytest.warns(UserWarning, match=r"scores for 2 of 6.55e\+04 possible sequences"):
        stochflow.train(table=path, out=tmp_path / "run", steps=1, config=QUICK, gap_score=0.0)


def test_tables_can_be_compared_on(table: Path, tmp_path: Path) -> None:
    from stochflow.experiments.sweep.config import SweepConfig
    from stochflow.experiments.sweep.specification import check_existing, plan

    settings = {**QUICK, "table": {"file": str(table), "sequence_column": "seq", "score_column": "one,two"}}
    settings = {name: value for name, value in settings.items() if name != "channel"}
    settings["table"] |= {"alphabet": "ab", "gap_score": 0.0}
    runs = plan(SweepConfig(tasks=["table"], feedback=["step"], seeds=1, trajectories=64, settings=settings))
    assert [run.name for run in runs] == ["own-sgfn-kl-0.25-seed0", "own-sgfn-db-0.25-seed0"]
    made = stochflow.train(config=runs[0].config.model_dump(), out=tmp_path / "runs" / runs[0].name)
    assert made.summary.task == "own"
    check_existing(tmp_path, runs)
    table.write_text(TABLE_TEXT.replace("0.1", "0.2"), encoding="utf-8")
    changed = plan(SweepConfig(tasks=["table"], feedback=["step"], seeds=1, trajectories=64, settings=settings))
    with pytest.raises(ConfigError, match="was made with another 'table'"):
        check_existing(tmp_path, changed)


# P(aa) when R(aa) is the mean 0.55, or the geometric mean √0.1
ARITHMETIC, GEOMETRIC = (mean / (mean + 1.05) for mean in (0.55, math.sqrt(0.1)))


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("sgfn-kl", ARITHMETIC),
        ("sgfn-kl-bootstrap", ARITHMETIC),
        ("edb", ARITHMETIC),
        ("mcmc", ARITHMETIC),
        ("gfn-db", GEOMETRIC),
        ("sgfn-tb", GEOMETRIC),
        ("sgfn-kl-trajectory", GEOMETRIC),
    ],
)
def test_a_method_goes_where_its_summary_says(table: Path, method: str, expected: float) -> None:
    steps = 120 if method in ("mcmc", "sgfn-kl-trajectory") else 40
    settings = ["optimiser.batch_size=64", f"optimiser.updates={4 if method == 'sgfn-kl-bootstrap' else 8}"]
    run = train(table, method=method, reward_noise="replicate", settings=settings, steps=steps)
    assert run.summary.reward_mean == ("E[R]" if expected == ARITHMETIC else "exp E[log R]")
    experiment = run.experiment()
    probs = experiment.policy.terminal_log_probs(experiment.environment).exp()
    assert float(probs[0]) == pytest.approx(expected, abs=0.04)


@pytest.mark.parametrize("shape", REWARD_MEANS)
def test_a_noisy_reward_settles_at_the_mean_that_the_loss_implies(shape: LossShape) -> None:
    rewards = torch.tensor([0.2, 1.0, 0.4], dtype=torch.float64)
    mean, inverse = float(rewards.mean()), float((1 / rewards).mean())
    expected = {
        "E[R]": mean,
        "exp E[log R]": math.exp(float(rewards.log().mean())),
        "E[√R]²": float(rewards.sqrt().mean()) ** 2,
        "1/E[1/R]": 1 / inverse,
        "√(E[R]/E[1/R])": math.sqrt(mean / inverse),
    }[REWARD_MEANS[shape]]
    found = minimize_scalar(lambda log_flow: float(shaped(log_flow - rewards.log(), shape).mean()), bounds=(-3, 1))
    assert math.exp(found.x) == pytest.approx(expected, rel=1e-4)


def test_the_report_says_where_a_method_goes_under_noise(table: Path) -> None:
    noisy = stochflow.report(train(table, reward_noise="gaussian:0.1", method="gfn-db").path)
    assert "Measurements are noisy (gaussian:0.1)" in noisy.read_text(encoding="utf-8")
    assert "this method converges to exp E[log R]." in noisy.read_text(encoding="utf-8")
