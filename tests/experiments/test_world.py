"""A table that does not cover its space is evidence: other scores are predicted, and the run says how well."""

import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import stochflow
from stochflow.config.environment import ConstraintConfig
from stochflow.config.methods import method_settings
from stochflow.config.schema import Config
from stochflow.config.yaml import dump_yaml
from stochflow.core.errors import ConfigError, DataError, Note
from stochflow.environments.sequences.task import Alphabet
from stochflow.environments.table_world import num_missing
from stochflow.experiments.launch import prepare
from stochflow.experiments.world import resolve_world
from stochflow.reports.diagnosis import diagnose
from stochflow.runs.directory import CONFIG, HELD_OUT, RunDirectory

DNA = Alphabet("ACGT")
QUICK = {
    "model": {"kmers": [1, 2], "width": 16, "num_layers": 1},
    "evaluation": {"num_samples": 200},
    "channel": {"kind": "none"},
}


def write(path: Path, num: int = 60, length: int = 4) -> Path:
    """Measured scores −5 to −1: one more for every A, with 60 of 256 sequences of four letters."""
    generator = torch.Generator().manual_seed(0)
    every = torch.cartesian_prod(*[torch.arange(4)] * length)
    tokens = every[torch.randperm(len(every), generator=generator)[:num]]
    rows = {"sequence": DNA.decode(tokens), "score": ((tokens == 0).sum(dim=1) - 5.0).tolist()}
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> stochflow.Run:
    folder = tmp_path_factory.mktemp("measured")
    with pytest.warns(Note, match=r"60 of 256 sequences are measured: the table is taken as evidence, and scores of"):
        return stochflow.train(table=write(folder / "own.csv"), out=folder / "run", steps=4, config=QUICK)


def test_a_summary_says_what_the_prediction_is_worth(trained: stochflow.Run) -> None:
    summary = trained.summary
    assert (summary.world, summary.measured, summary.oracle_calls, summary.beta) == ("measured", 60, 0, 10.0)
    assert summary.surrogate_r2 is not None
    assert summary.surrogate_r2 > 0.8
    assert None not in (summary.novelty, summary.regret)
    held_out = pd.read_csv(trained.path / HELD_OUT)
    assert list(held_out) == ["sequence", "measured", "predicted", "low", "high", "distance"]
    assert len(held_out) == 60


def test_samples_come_with_what_is_known_of_them(trained: stochflow.Run) -> None:
    for samples in (pd.read_csv(trained.path / "samples.csv"), trained.sample(50)):
        added = ["predicted", "low", "high", "nearest", "distance", "measured", "measured_score"]
        assert list(samples) == ["sequence", "intended", "score", "log_reward", "log_prob", *added]
        truth = samples["sequence"].str.count("A") - 5.0
        good = samples[samples["predicted"] > -3.0]  # far above the floor
        assert (good["score"] - good["predicted"]).abs().max() < 0.5  # both on the table's scale
        assert (good["score"] <= good["predicted"] + 1e-9).all()  # less for what is not known well
        assert (samples["predicted"] - truth).abs().max() < 1.0
        assert (samples["measured"] == (samples["distance"] == 0)).all()
        letters = [DNA.encode(samples[name].tolist()) for name in ("sequence", "nearest")]
        assert (letters[0] != letters[1]).sum(dim=1).tolist() == samples["distance"].tolist()


def large_table(folder: Path) -> Path:
    """Forty of the sixteen million sequences of twelve letters, which are too many to be listed."""
    rng = random.Random(0)
    rows = [f"{''.join(rng.choices('ACGT', k=12))},{rng.gauss(0, 1):.3f}" for _ in range(40)]
    (folder / "large.csv").write_text("\n".join(["sequence,score", *rows]), encoding="utf-8")
    return folder / "large.csv"


def test_a_large_measured_table_trains_under_noise_without_further_choices(tmp_path: Path) -> None:
    quick: dict[str, Any] = {"model": QUICK["model"], "evaluation": {"num_samples": 50, "curve_samples": 20}}
    options: dict[str, Any] = {"world": "measured", "noise": 0.05, "config": quick, "steps": 1}
    run = stochflow.train(table=large_table(tmp_path), out=tmp_path / "run", **options)
    assert (run.config.method, run.config.feedback, run.summary.status) == ("gfn-tb", "none", "finished")
    best = run.sample(20, best=3)
    assert list(best["expected_score"].diff() > 0) == [False] * 3
    # on the table's scale, on which orders are predicted
    assert (best["expected_score"] - best["predicted"]).abs().max() < 1.0
    assert best["order"].tolist() != best["sequence"].tolist()
    orders = [
        sum(a != b for a, b in zip(*pair, strict=True)) for pair in zip(best["order"], best["nearest"], strict=True)
    ]
    assert orders == best["distance"].tolist()


@pytest.mark.parametrize(
    ("layer", "method"),
    [
        ({}, "sgfn-kl-trajectory"),
        ({"channel": {"kind": "uniform-slip", "noise": 0.05}}, "gfn-tb"),
        ({"channel": {"kind": "doped", "noise": 0.79}}, "gfn-tb"),
        ({"channel": {"kind": "array-synthesis", "noise": 0.001}}, "sgfn-kl-trajectory"),  # without its deletions
        ({"channel": {"kind": "uniform-slip", "noise": 0.05}, "feedback": "step"}, "sgfn-kl-trajectory"),
        (
            {"channel": {"kind": "uniform-slip", "noise": 0.05}, "constraints": {"fixed": "A..........."}},
            "sgfn-kl-trajectory",
        ),
        ({"channel": {"kind": "uniform-slip", "noise": 0.05}, "method": "sgfn-kl"}, "sgfn-kl"),
    ],
)
def test_the_method_of_a_large_measured_table_fits_its_noise_and_feedback(
    layer: dict[str, Any], method: str, tmp_path: Path
) -> None:
    config, _ = resolve_world([{"task": "table", "table": {"file": str(large_table(tmp_path))}}, layer])
    assert config.method == method
    assert config.optimiser == Config.model_validate(method_settings(method)).optimiser


def test_the_optimum_is_that_of_the_predicted_scores(trained: stochflow.Run) -> None:
    found = stochflow.exact(table=trained.path.parent / "own.csv", world="measured", noise="none")
    assert found["log_z_true"] == trained.summary.log_z_true
    assert found["beta"] == 10.0


def test_a_resumed_run_goes_on_as_if_never_stopped(trained: stochflow.Run) -> None:
    folder = trained.path.parent
    stop = iter([False, False, True]).__next__
    parted = stochflow.train(
        table=folder / "own.csv", world="measured", out=folder / "two", steps=4, config=QUICK, stop=stop
    )
    assert parted.summary.steps == 2
    again = stochflow.train(out=parted.path, resume=True, steps=4)
    pd.testing.assert_frame_equal(
        again.metrics.drop(columns=["seconds", "crc32"], errors="ignore"),
        trained.metrics.drop(columns=["seconds", "crc32"], errors="ignore"),
    )
    with pytest.raises(ConfigError, match="was started with another 'table'"):
        stochflow.train(out=parted.path, resume=True, gap_score=0.0, world="complete", settings=["table.scale=unit"])


def test_the_report_shows_held_out_rows_and_the_doctor_reads_them(trained: stochflow.Run) -> None:
    page = stochflow.report(trained.path).read_text(encoding="utf-8")
    assert "What the table says" in page
    assert "Error by distance" in page
    assert "guesses" not in {finding.kind for finding in diagnose(trained.path)[0][0].findings}
    (trained.path / HELD_OUT).write_text("measured\n", encoding="utf-8")
    assert "held_out.csv is damaged" in stochflow.report(trained.path).read_text(encoding="utf-8")


def test_a_table_without_gaps_is_complete(tmp_path: Path) -> None:
    full = write(tmp_path / "full.csv", num=16, length=2)
    layers: list[dict[str, Any]] = [{"task": "table", "table": {"file": str(full), "scale": "unit"}}]
    configured = prepare(layers)
    assert (configured.config.table.world, configured.config.reward.beta) == ("complete", 3.0)
    assert configured.environment.evidence is None


def test_only_feasible_sequences_can_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "half.csv"
    path.write_text("sequence,score\nAA,1\nAC,2\nAG,3\nAT,4\n", encoding="utf-8")
    layers: list[dict[str, Any]] = [{"task": "table", "table": {"file": str(path)}, "constraints": {"fixed": "A."}}]
    configured = prepare(layers)
    assert configured.config.table.world == "complete"
    assert configured.table is not None
    free = configured.config.model_copy(update={"constraints": ConstraintConfig()})
    assert num_missing(free, configured.table) == 12


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"world": "complete"}, "lacks 196 of 256 possible sequences; say what they score, as in --gap-score 0"),
        ({"world": "measured", "gap_score": 0.0}, "--gap-score is for a table that is the whole world"),
        ({"world": "measured", "reward_noise": "gaussian:0.1"}, "leave out --reward-noise"),
        ({"world": "measured", "oracle_calls": 9, "steps": None}, "predictions from a measured table are not paid for"),
        ({"world": "both"}, "world"),
        ({"gap_score": -1.0}, "gap_score"),
    ],
)
def test_what_contradicts_itself_is_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    given = {"table": write(tmp_path / "own.csv"), "out": tmp_path / "run", "steps": 1, **options}
    with pytest.raises((ConfigError, DataError), match=message):
        stochflow.train(**given)
    assert not (tmp_path / "run").exists()


def test_a_gap_has_the_score_that_is_given(tmp_path: Path) -> None:
    path = tmp_path / "gap.csv"
    path.write_text("sequence,score\nAA,1\nCC,2\n", encoding="utf-8")
    table = {"file": str(path), "alphabet": "AC", "gap_score": 0.5}
    environment = prepare([{"task": "table", "table": table}]).environment
    assert environment.score(torch.tensor([[0, 0], [0, 1], [1, 1]])).tolist() == [1.0, 0.5, 2.0]


def test_a_run_from_before_worlds_had_names_means_what_it_meant(tmp_path: Path) -> None:
    path = tmp_path / "old.csv"
    path.write_text("sequence,score\nAA,1\nCC,2\n", encoding="utf-8")
    run = stochflow.train(table=path, alphabet="AC", gap_score=0.0, out=tmp_path / "run", steps=1, config=QUICK)
    before = run.evaluate()
    old = run.config.model_copy(
        update={"table": run.config.table.model_copy(update={"world": None, "gap_score": None})}
    )
    text = dump_yaml(old).replace("  world: null\n", "").replace("  gap_score: null\n", "")
    assert "world:" not in text
    (run.path / CONFIG).write_text(text, encoding="utf-8")
    config = RunDirectory.open(run.path).config().table
    assert (config.world, config.gap_score) == ("complete", 0.0)
    assert stochflow.load(run.path).evaluate() == before


def test_the_doctor_says_when_a_table_explains_nothing(tmp_path: Path, trained: stochflow.Run) -> None:
    from stochflow.runs.monitor.evidence import evidence_findings

    summary = trained.summary
    assert evidence_findings(trained.config, None) == []
    (guesses,) = evidence_findings(trained.config, summary.model_copy(update={"surrogate_r2": 0.05}))
    assert (guesses.kind, guesses.severity) == ("guesses", "bad")
    far = summary.model_copy(update={"surrogate_reach": 3, "novelty": 5.2, "surrogate_coverage": 0.5})
    table, reach, intervals = evidence_findings(trained.config, far)
    assert (table.kind, table.severity) == ("table", "note")
    assert table.seen.startswith("R² of held-out scores is ")
    assert "50% inside their 80 % intervals, with 60 measured sequences" in table.seen
    assert table.means.startswith(
        "predictions can be trusted up to 3 letters from a measured sequence; designs are 5.2"
    )
    assert reach.means == "this table says little about designs more than 3 letters away"
    assert (intervals.kind, intervals.means) == ("intervals", "the intervals `low` to `high` are too narrow")
    near = summary.model_copy(update={"surrogate_reach": 3, "novelty": 2.9, "surrogate_coverage": 0.8})
    assert [finding.kind for finding in evidence_findings(trained.config, near)] == ["table"]
