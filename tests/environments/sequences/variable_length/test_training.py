"""Variable length from the command to the summary, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import stochflow
from stochflow import api
from stochflow.cli import app as cli
from stochflow.config.methods import METHODS
from stochflow.core.errors import ConfigError, DataError, StochflowError
from stochflow.environments.sequences.variable_length import VariableTask
from stochflow.experiments import build as experiment
from stochflow.experiments import launch
from stochflow.experiments.experiment import Experiment

MIXED = "sequence,score\nA,0.1\nAB,0.9\nBA,0.2\nBB,0.4\nAAB,0.8\nBBA,0.3\nABAB,1.0\nBBBB,0.6\n"
TINY: dict[str, Any] = {
    "model": {"width": 16, "num_layers": 1},
    "optimiser": {"batch_size": 32, "updates": 2},
    "evaluation": {"num_samples": 200, "every": 1},
    "budget": {"steps": 2},
    "dynamics": {"rounds": 1, "sample_size": 64},
    "channel": {"noise": 0.2},
}
BOTH = {"deletion": 0.1, "duplication": 0.1}
NETWORK_METHODS = [
    name for name, method in METHODS.items() if not (method.objective.edits_designs or method.objective.one_length)
]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "mixed.csv"
    path.write_text(MIXED, encoding="utf-8")
    return path


def build(table: Path, **overrides: Any) -> Experiment:
    given = {
        "task": "table",
        "table": {"file": str(table), "alphabet": "AB", "gap_score": 0.0},
        "lengths": {"variable": True},
    }
    return experiment.build(launch.resolve_config([TINY, given, overrides]))


def train(table: Path, **options: Any) -> api.Run:
    given = {"config": TINY, "alphabet": "AB", "variable_length": True, "out": table.parent / "run", "gap_score": 0.0}
    return stochflow.train(table=table, **given | options)


@pytest.mark.parametrize("method", NETWORK_METHODS)
@pytest.mark.parametrize("edits", [{}, BOTH])
def test_every_method_keeps_to_the_rules_and_pays_once(method: str, edits: dict[str, float], table: Path) -> None:
    built = build(table, method=method, channel=edits, exploration={"epsilon": 0.2})
    records = []
    while not built.trainer.finished:
        records.append(built.trainer.train_step())
    assert isinstance(built.environment.task, VariableTask)
    rules, learner = built.environment.task.rules, built.trainer.learner
    replay = learner.replay.sample(64, torch.Generator().manual_seed(0))
    assert bool(rules.possible(replay.outcomes).all())
    allowed = rules.intentions(rules.progress(replay.outcomes))[:, :-1]
    assert bool(allowed.gather(-1, replay.intentions.unsqueeze(-1)).all())
    # one masked log π of −69 in a residual would cost thousands
    assert all(abs(record.get("loss", 0.0)) < 1000 for record in records)
    seen = learner.memory.sequences
    designs = set(built.environment.task.alphabet.decode(seen[rules.alive(seen)]))
    assert built.trainer.calls == len(designs)
    assert built.truth is not None
    assert built.truth.evaluate(built.policy)["regret"] >= 0.0


def test_a_trained_sampler_comes_close_to_the_optimum_and_closer_than_balance(table: Path) -> None:
    """With deletions and duplications, whose shares are fixed, the optimum itself is out of reach by 0.015 nats."""
    larger = {
        "optimiser": {"batch_size": 128, "updates": 8},
        "model": {"width": 32},
        "dynamics": {"rounds": 4, "sample_size": 256},
        "budget": {"steps": 40},
    }
    regrets = {}
    for method in ("sgfn-kl", "sgfn-db"):
        built = build(table, method=method, **larger)
        while not built.trainer.finished:
            built.trainer.train_step()
        assert built.truth is not None
        regrets[method] = built.truth.evaluate(built.policy)["regret"]
    assert 0.0 <= regrets["sgfn-kl"] < 0.01
    assert regrets["sgfn-kl"] < regrets["sgfn-db"]


def test_designs_are_plain_strings_everywhere(table: Path) -> None:
    run = train(table, **BOTH)
    frame = pd.read_csv(run.path / "samples.csv", keep_default_na=False)
    scores = dict(line.split(",") for line in MIXED.splitlines()[1:])
    assert frame["sequence"].str.fullmatch("[AB]{0,5}").all()
    assert frame["intended"].str.fullmatch("[AB]{0,4}").all()
    assert frame["score"].tolist() == [float(scores.get(design, 0.0)) for design in frame["sequence"]]
    feasible = frame["sequence"].str.len().between(1, 4)
    assert (frame["feasible"].astype(str) == feasible.astype(str)).all()
    assert 0.5 < run.summary.feasible_fraction < 1.0  # type: ignore[operator]
    assert run.summary.noise == "0.2+deletion:0.1+duplication:0.1"
    fasta = (run.path / "samples.fasta").read_text(encoding="utf-8").splitlines()
    assert fasta[1::2] == frame["sequence"].tolist()
    assert set(run.sample(50, noise="none")["sequence"].str.len()) <= set(range(6))
    assert run.evaluate() == run.summary
    page = stochflow.report(run.path).read_text(encoding="utf-8")
    assert "stop" in page
    assert "different lengths" in page
    assert (run.config.lengths.min_length, run.config.lengths.max_length) == (1, 4)


@pytest.mark.parametrize("edits", [{}, BOTH])
def test_a_resumed_run_goes_on_as_if_never_stopped(table: Path, edits: dict[str, float]) -> None:
    whole = train(table, steps=4, **edits)
    kept = whole.metrics.drop(columns="seconds")
    parted = train(table, steps=4, overwrite=True, stop=iter([False, False, True]).__next__, **edits)
    assert parted.summary.steps == 2
    table.unlink()
    parted = stochflow.train(out=parted.path, resume=True)
    assert parted.metrics.drop(columns="seconds").equals(kept)
    with pytest.raises(ConfigError, match="another 'lengths'"):
        stochflow.train(out=parted.path, resume=True, max_length=5)


def test_wider_bounds_make_room_for_designs_that_nobody_measured(table: Path) -> None:
    built = build(table, lengths={"min_length": 1, "max_length": 5})
    assert built.truth is not None
    assert len(built.truth.log_rewards) == 2 + 4 + 8 + 16 + 32
    assert built.environment.task.num_designs == 62


def test_noise_in_the_reward_goes_with_it(table: Path) -> None:
    summary = train(table, reward_noise="gaussian:0.1", **BOTH).summary
    assert summary.oracle_calls > 30
    assert summary.regret is not None


def test_novelty_and_modes_are_counted_in_edits(table: Path, tmp_path: Path) -> None:
    known = tmp_path / "known.txt"
    known.write_text("AB\nBBBB\n", encoding="utf-8")
    run = train(table, settings=[f"evaluation.reference={known}"])

    def edits(one: str, other: str) -> int:
        if not one or not other:
            return len(one) + len(other)
        return min(
            edits(one[1:], other) + 1, edits(one, other[1:]) + 1, edits(one[1:], other[1:]) + (one[0] != other[0])
        )

    drawn = run.sample(200)["sequence"]
    expected = [min(edits(design, "AB"), edits(design, "BBBB")) for design in drawn]
    assert run.summary.novelty == pytest.approx(sum(expected) / 200)


ASKED: list[str] = []


def count_a(designs: list[str]) -> list[float]:
    ASKED.extend(designs)
    return [0.1 + design.count("A") for design in designs]


@pytest.mark.parametrize("edits", [{}, BOTH])
def test_an_oracle_hears_strings_within_the_bounds_and_each_once(tmp_path: Path, edits: dict[str, float]) -> None:
    ASKED.clear()
    run = stochflow.train(
        oracle=lambda designs: count_a(designs),
        min_length=2,
        max_length=4,
        alphabet="dna",
        config=TINY,
        out=tmp_path / "run",
        **edits,
    )
    assert {len(design) for design in ASKED} <= {2, 3, 4}
    assert len(ASKED) == len(set(ASKED)) == run.summary.oracle_calls
    assert run.summary.regret is None
    assert set("".join(ASKED)) <= set("ACGT")


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "bounds the wrong way round": ({"min_length": 4, "max_length": 2}, "min_length 4 is above max_length 2"),
    "no letters": ({"min_length": 0}, "min_length"),
    "narrow bounds": ({"max_length": 3}, "has sequences of 1 to 4 letters, and designs shall have 1 to 3"),
    "too much": ({"deletion": 0.5, "duplication": 0.5}, "together must stay below 1"),
    "negative": ({"deletion": -0.1}, "deletion"),
    "always": ({"duplication": 1.0}, "duplication"),
    "edits alone": ({"deletion": 0.1, "variable_length": False}, "add --variable-length"),
    "mixed without asking": ({"variable_length": False}, "give --variable-length"),
    "constraints": ({"constraints": {"forbid": ["A"]}}, "constraints are about designs of one length"),
    "chains": ({"method": "mcmc"}, "mcmc changes letters of designs of one length"),
    "masked letters": ({"method": "gfn-delta-cs"}, "gfn-delta-cs changes letters of designs of one length"),
    "k-mers by position": ({"method": "kmer-plan"}, "kmer-plan plans on designs of one length; choose another method"),
    "local search": ({"method": "gfn-ls"}, "gfn-ls changes letters of designs of one length"),
    "restarts": (
        {"method": "sgfn-kl-bootstrap", "settings": ["exploration.restarts=0.1"]},
        "random prefixes may break the rules",
    ),
    "another task": ({"table": None, "alphabet": None, "task": "tfbind8"}, "'tfbind8' has designs of one length"),
    "an oracle without end": (
        {"table": None, "oracle": "lab:f", "min_length": 2},
        "an oracle of variable length needs --max-length",
    ),
    "an oracle with a length too": (
        {"table": None, "oracle": "lab:f", "length": 5, "max_length": 5},
        "and no --length",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_refused_in_one_sentence(case: str, table: Path) -> None:
    options, sentence = BAD[case]
    given = {"table": table, "alphabet": "AB", "variable_length": True, "out": table.parent / "run", "steps": 1}
    with pytest.raises(StochflowError, match=sentence) as caught:
        stochflow.train(**given | options)
    assert isinstance(caught.value, ConfigError | DataError)
    assert "\n" not in str(caught.value)
    assert not (table.parent / "run").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--min-length", "4", "--max-length", "2"],
        ["--variable-length", "--deletion", "0.6", "--duplication", "0.6"],
        ["--variable-length", "--deletion", "-1"],
        ["--deletion", "0.1"],
        [],
    ],
)
def test_the_command_line_ends_with_code_2(words: list[str], table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(table.parent)
    monkeypatch.setattr("sys.argv", ["stochflow", "train", "--table", str(table), "--alphabet", "AB", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert not (table.parent / "runs").exists()


def test_the_command_line_trains(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = table.parent / "run"
    words = ["train", "--table", str(table), "--alphabet", "AB", "--min-length", "1", "--max-length", "4"]
    words += ["--deletion", "0.05", "--duplication", "0.05", "--gap-score", "0", "--steps", "1", "--out", str(out)]
    words += [f"--set={name}" for name in ("model.width=8", "optimiser.updates=1", "optimiser.batch_size=16")]
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code == 0, result.output
    assert json.loads((out / "summary.json").read_text(encoding="utf-8"))["regret"] > 0


@pytest.mark.parametrize("method", ["sgfn-kl", "sgfn-db", "ppo"])
@pytest.mark.parametrize("changed", ["deletion", "duplication"])
def test_a_changed_rate_changes_what_is_learned(changed: str, method: str, table: Path) -> None:
    weights = []
    for rates in (BOTH, BOTH, BOTH | {changed: 0.2}):
        built = build(table, method=method, channel=rates)
        while not built.trainer.finished:
            built.trainer.train_step()
        weights.append(built.network.policy_head.weight.detach().clone())
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
