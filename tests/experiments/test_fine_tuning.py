"""Pre-training and what begins with it, as run directories: resumed exactly, self-contained, refused with a remedy."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import stochflow
from stochflow.core.errors import ConfigError
from stochflow.environments.registry import TASKS
from stochflow.runs.directory import RunDirectory
from stochflow.sampling.policies import policy_of
from stochflow.training.conditional import ConditionalKL, Support
from tests.training.conditional.favourites import SETTINGS, Favourite

STEPS = 160
SMALL: dict[str, Any] = {
    **SETTINGS,
    "budget": {"steps": STEPS},
    "evaluation": {"num_samples": 40, "every": 0.25},
    "checkpoint_every": 0.1,
}
TINY = (
    *("optimiser.batch_size=16", "optimiser.updates=8", "dynamics.kind=known", "checkpoint_every=0.3"),
    "evaluation.num_samples=40",
)


class PowerCutError(Exception):
    """The machine stops between two steps."""


class Spelt(Favourite):
    """The same words in other letters."""

    alphabet = stochflow.Alphabet("XYZ")


@pytest.fixture(scope="module", autouse=True)
def known_tasks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for letter in range(3):
            patch.setitem(TASKS, f"favourite-{letter}", lambda letter=letter: Favourite(letter))
        patch.setitem(TASKS, "spelt", lambda: Spelt(0))
        yield


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pre-training run that nobody disturbed; to be read, not changed."""
    return stochflow.pretrain(config=SMALL, out=tmp_path_factory.mktemp("many") / "run").path


def tune(many: Path | None, out: Path, support: int | None = 24, **arguments: Any) -> stochflow.Run:
    given = {"trajectories": 64, "settings": TINY, "out": out} | arguments
    return stochflow.train("favourite-2", pretrained=many, support=support, **given)


def contents(path: Path) -> dict[str, Any]:
    """All that a run leaves behind, without what the clock says."""
    run = stochflow.load(path)
    return {
        "metrics": run.metrics.drop(columns="seconds").to_dict("list"),
        "summary": run.summary.model_dump(exclude={"seconds"}),
        "samples": (path / "samples.csv").read_text(encoding="utf-8"),
        "config": run.config,
    }


def assert_same_run(found: Path, expected: Path) -> None:
    states = [RunDirectory.open(path).load_checkpoint() for path in (found, expected)]
    assert states[0].keys() == states[1].keys()
    for name, tensor in states[1].items():
        if name != "counters":  # seconds are among them
            assert torch.equal(states[0][name], tensor), name
    assert str(contents(found)) == str(contents(expected))  # as text: NaN marks steps without an evaluation


def cut_after(step: int) -> Any:
    def listen(record: dict[str, float], progress: float) -> None:
        if record["step"] == step:
            raise PowerCutError

    return listen


def test_a_pretraining_run_is_a_run_like_any_other(many: Path) -> None:
    run = stochflow.load(many)
    summary = run.summary
    assert (summary.task, summary.method, summary.status) == ("pretraining", "conditional-kl", "finished")
    assert (summary.steps, summary.trajectories, summary.oracle_calls) == (STEPS, 0, 0)
    assert summary.regret is not None
    assert run.metrics["start_regret"].dropna().item() > 2.0 * summary.regret
    assert run.metrics["regret"].notna().sum() == 4
    assert run.evaluate() == summary
    drawn = run.sample(10)
    assert drawn["task"].tolist() == ["favourite-0"] * 5 + ["favourite-1"] * 5
    assert drawn["score"].notna().all()


def test_stopping_and_resuming_pretraining_changes_nothing(many: Path, tmp_path: Path) -> None:
    stopped: list[float] = []
    arguments: dict[str, Any] = {"config": SMALL, "out": tmp_path / "stopped"}
    half = stochflow.pretrain(
        **arguments,
        listen=lambda record, _: stopped.append(record["step"]),
        stop=lambda: bool(stopped) and stopped[-1] >= STEPS // 2 + 1,
    )
    assert (half.summary.status, half.summary.steps) == ("interrupted", STEPS // 2 + 1)
    stochflow.pretrain(out=tmp_path / "stopped", resume=True)
    assert_same_run(tmp_path / "stopped", many)


def test_a_power_cut_in_pretraining_can_be_resumed(many: Path, tmp_path: Path) -> None:
    with pytest.raises(PowerCutError):
        stochflow.pretrain(config=SMALL, out=tmp_path / "cut", listen=cut_after(STEPS // 2 + 1))
    stochflow.train(out=tmp_path / "cut", resume=True)  # the doctor names this command
    assert_same_run(tmp_path / "cut", many)


def test_doctor_and_report_have_something_to_say(many: Path, tmp_path: Path) -> None:
    (diagnosis,) = stochflow.doctor(many)
    assert not {"zero-scores", "diverged", "stalled"} & {finding.kind for finding in diagnosis.findings}
    assert all("--trajectories" not in finding.remedy for finding in diagnosis.findings)
    page = stochflow.report(many, tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"stochflow pretrain --tasks favourite-0,favourite-1 --noise 0.2 --seed 0 --steps {STEPS}" in page
    assert "Every point is a sequence of one of the tasks" in page


def test_fine_tuning_starts_from_the_sampler_with_the_support_paid_for(many: Path, tmp_path: Path) -> None:
    run = tune(many, tmp_path / "tuned")
    summary, config = run.summary, run.config
    assert config.pretraining.tasks == ["favourite-0", "favourite-1"]
    assert config.channel.noise == 0.2
    assert (summary.trajectories, summary.support) == (64, 24)
    learner = run.experiment().trainer.learner
    # the support and what was paid for after it are remembered; only the latter are calls of the budget
    assert learner.memory.num_calls == 24 + summary.oracle_calls
    assert run.metrics["start_regret"].dropna().item() < 0.5 * _scratch_regret()
    assert summary.regret is not None


def _scratch_regret() -> float:
    experiment = stochflow.build(
        stochflow.SequenceEnvironment(Favourite(2), stochflow.uniform_slip(3, 0.2)), settings=["reward.beta=2"], steps=1
    )
    return experiment.evaluate()["regret"]


def test_the_network_of_a_run_is_the_sampler_given_its_support(many: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    with pytest.raises(PowerCutError):
        tune(many, cut, listen=cut_after(1))
    start = stochflow.load(cut).experiment()  # the checkpoint before the first step
    assert start.trainer.step == 0
    memory = start.trainer.learner.memory
    tokens = Favourite(2).all_sequences
    scores = memory.lookup(tokens)
    paid = ~scores.isnan()
    assert int(paid.sum()) == 24
    objective = stochflow.load(many).experiment().trainer.objective
    assert isinstance(objective, ConditionalKL)
    given = objective.conditional.given(Support(tokens[paid], scores[paid]))
    assert start.truth is not None
    expected = start.truth.evaluate(policy_of(given))
    assert start.evaluate() == pytest.approx(expected, abs=1e-5)


def test_a_fine_tuned_run_needs_its_pretraining_no_more(many: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(many, tmp_path / "copy"))
    expected = tune(copy, tmp_path / "straight")
    with pytest.raises(PowerCutError):
        tune(copy, tmp_path / "cut", listen=cut_after(3))
    shutil.rmtree(copy)
    tune(copy, tmp_path / "cut", resume=True)  # the same command again
    assert_same_run(tmp_path / "cut", tmp_path / "straight")
    loaded = stochflow.load(tmp_path / "straight")
    assert loaded.evaluate() == expected.summary
    assert len(loaded.sample(5)) == 5


def test_a_run_that_had_not_begun_needs_the_sampler_again(many: Path, tmp_path: Path) -> None:
    expected = tune(many, tmp_path / "straight")
    directory = RunDirectory.create(tmp_path / "cut", expected.config, overwrite=False)
    assert not directory.begun
    with pytest.raises(ConfigError, match="had not begun yet; name the sampler that it begins with, by --from"):
        stochflow.train(out=tmp_path / "cut", resume=True)
    tune(many, tmp_path / "cut", resume=True)
    assert_same_run(tmp_path / "cut", tmp_path / "straight")


def test_a_budget_of_oracle_calls_begins_after_the_support(many: Path, tmp_path: Path) -> None:
    run = tune(many, tmp_path / "calls", trajectories=None, oracle_calls=30)
    assert (run.summary.oracle_calls, run.summary.support) == (30, 24)


@pytest.mark.parametrize(
    ("task", "arguments", "message"),
    [
        ("spelt", {}, r"sequences of 4 letters of ABC, and favourite-0 is another space; leave out --from"),
        ("tfbind8", {}, r"sequences of 4 letters of ABC, and tfbind8 is another space; leave out --from"),
        ("hypergrid", {}, r"and hypergrid is another space; leave out --from"),
        ("favourite-2", {"context": "none"}, r"reads a support set; leave out --context none, or --from"),
        ("favourite-2", {"context": "history"}, r"reads no history|reads a support set"),
        ("favourite-2", {"settings": ["model.width=8"]}, r"the network is that of .*; leave out settings of model"),
        ("favourite-2", {"settings": ["pretraining.context_width=8"]}, r"the network is that of"),
        ("favourite-2", {"method": "mcmc"}, r"'mcmc' trains no network; choose another --method"),
        ("favourite-2", {"support": 82}, r"--support takes a number from 1 to 81"),
        ("favourite-2", {"support": None}, r"give both or none"),
        ("favourite-2", {"pretrained": None}, r"give both or none"),
        ("favourite-2", {"support": None, "pretrained": None, "settings": ["pretraining.support=3"]}, r"with --from"),
        ("favourite-2", {"support": None, "pretrained": None, "settings": ["pretraining.tasks=[tfbind8]"]}, r"--from"),
    ],
)
def test_a_run_that_cannot_begin_with_a_sampler_is_refused(
    task: str, arguments: dict[str, Any], message: str, many: Path, tmp_path: Path
) -> None:
    given = {"pretrained": many, "support": 24, "out": tmp_path / "run"} | arguments
    with pytest.raises(ConfigError, match=message):
        stochflow.train(task, **given)
    assert not (tmp_path / "run").exists()


def test_a_run_may_begin_with_a_sampler_under_another_channel(many: Path, tmp_path: Path) -> None:
    run = tune(many, tmp_path / "quiet", noise="none")
    assert (run.summary.noise, run.summary.min_kl) == (0.0, pytest.approx(0.0, abs=1e-9))


def test_another_run_is_no_pretrained_sampler(many: Path, tmp_path: Path) -> None:
    tuned = tune(many, tmp_path / "tuned").path
    with pytest.raises(ConfigError, match=r"a run on 'favourite-2'; give --from the --out of a `stochflow pretrain`"):
        tune(tuned, tmp_path / "again")


def test_a_sampler_whose_pretraining_goes_on_can_be_used_with_a_warning(tmp_path: Path) -> None:
    steps: list[float] = []
    half = stochflow.pretrain(
        config=SMALL,
        out=tmp_path / "half",
        listen=lambda record, _: steps.append(record["step"]),
        stop=lambda: len(steps) == STEPS // 4,
    )
    with pytest.warns(UserWarning, match=r"stands at 25% of its budget; finish it with `stochflow pretrain --resume`"):
        tune(half.path, tmp_path / "tuned")


@pytest.mark.parametrize(
    ("tasks", "settings", "message"),
    [
        (None, [], "no task to pre-train on; name some with --tasks"),
        (["favourite-0", "tfbind8"], [], "one alphabet and length"),
        (["favourite-0", "nothing"], [], "unknown task 'nothing'"),
        (["favourite-0"], ["budget.trajectories=100"], "give --steps"),
        (["favourite-0"], ["dynamics.kind=learned"], "dynamics that are learned cannot be had in pre-training"),
        (["favourite-0"], ["constraints.forbid=[AA]"], "constraints cannot be had in pre-training"),
        (["favourite-0"], ["pretraining.support=3"], "a support of its own cannot be had in pre-training"),
    ],
)
def test_pretraining_that_cannot_be_is_refused(
    tasks: list[str] | None, settings: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        stochflow.pretrain(tasks, settings=settings, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("task", "method"), [("pretraining", "sgfn-kl"), ("tfbind8", "conditional-kl")])
def test_train_refuses_what_pretrain_is_for(task: str, method: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"use `stochflow pretrain --tasks A,B`"):
        stochflow.train(task, method=method, out=tmp_path / "run")
