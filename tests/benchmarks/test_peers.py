"""The comparison with peers: the same reward for all, ratios within a round, and verdicts that follow from them."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.peers import results, tables
from benchmarks.peers.__main__ import tell
from benchmarks.peers.processes import Peers, Row, WorkerError, parse, work
from benchmarks.peers.reward import read_log_rewards, require_same, spread, total_variation, write_log_rewards
from benchmarks.peers.settings import (
    BETA,
    CURVES,
    DIMENSIONS,
    FLOOR,
    GRID_REWARDS,
    NUM_BITS,
    SIDE,
    WORD_BITS,
    step_settings,
)
from benchmarks.peers.worker_ours import count, draw_curve, time_steps
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.bits import BitSequences
from stochflow.environments.sequences.tfbind8 import TFBind8
from stochflow.experiments.build import build
from stochflow.experiments.launch import resolve_config


def gfnx_log_rewards(scores: np.ndarray) -> np.ndarray:
    """What gfnx makes of scores: cubed, the largest scaled to ten, at least a thousandth."""
    powers = scores**3
    return np.log(np.maximum(10.0 * powers / powers.max(), 1e-3)).astype(np.float32)


def test_our_reward_is_that_of_gfnx_up_to_a_factor(tfbind8: TFBind8, tmp_path: Path) -> None:
    ours = Reward(BETA, FLOOR, ramp=0.0).log_reward(tfbind8.all_scores).numpy()
    theirs = gfnx_log_rewards(tfbind8.all_scores.numpy())
    write_log_rewards(tmp_path / "log_rewards.bin", ours)
    read = read_log_rewards(tmp_path / "log_rewards.bin")
    np.testing.assert_array_equal(read, ours)
    require_same(read, theirs)


def test_another_floor_is_another_reward(tfbind8: TFBind8) -> None:
    ours = Reward(BETA, FLOOR / 10, ramp=0.0).log_reward(tfbind8.all_scores).numpy()
    theirs = gfnx_log_rewards(tfbind8.all_scores.numpy())
    assert spread(ours, theirs) == pytest.approx(math.log(10.0) / 2, rel=0.05)
    with pytest.raises(ValueError, match="same β and floor"):
        require_same(ours, theirs)
    with pytest.raises(ValueError, match="same designs"):
        require_same(ours[:4], theirs)


def test_a_reward_that_is_not_a_number_is_not_the_same() -> None:
    with pytest.raises(ValueError, match="differs"):
        require_same(np.zeros(2), np.array([0.0, np.nan]))


def test_total_variation_of_a_worked_case() -> None:
    # target ½, ½ against 0.9, 0.1
    assert total_variation(np.log([0.9, 0.1]), np.log([7.0, 7.0])) == pytest.approx(0.4)
    assert total_variation(np.log([0.25, 0.75]), np.log([2.0, 6.0])) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("name", CURVES)
def test_the_settings_of_every_curve_are_valid(name: str) -> None:
    resolve_config([CURVES[name]])


def test_ours_is_as_large_as_the_peers_and_says_what_a_step_costs(capsys: pytest.CaptureFixture[str]) -> None:
    experiment = build(resolve_config([step_settings(16)]))
    assert count(experiment) == 142_601  # gfnx 143,623, torchgfn 143,366
    time_steps(experiment, iterations=2, warm_up=1)
    row = parse(capsys.readouterr().out)
    assert experiment.trainer.step == 3
    assert row["iterations"] == 2
    assert row["cpu_ms"] > 0


@pytest.mark.parametrize(("ground", "weights"), [("bits", 1_246_977), ("hypergrid", 147_482)])
def test_ours_is_about_as_large_as_the_peers_on_every_ground(
    ground: str, weights: int, capsys: pytest.CaptureFixture[str]
) -> None:
    config = resolve_config([step_settings(16, ground)])
    experiment = build(config)
    time_steps(experiment, iterations=1, warm_up=0)
    row = parse(capsys.readouterr().out)
    assert row["parameters"] == weights  # gfnx 1,185,027 and 142,603, torchgfn 1,184,770 and 142,346


def test_all_are_told_the_same_reward(tmp_path: Path) -> None:
    peers = Peers(tmp_path, tmp_path)
    tell(peers)
    assert read_log_rewards(peers.reward("hypergrid")).shape == (SIDE**DIMENSIONS,)
    assert np.exp(read_log_rewards(peers.reward("hypergrid"))[0]) == pytest.approx(sum(GRID_REWARDS[:2]))
    modes = read_log_rewards(peers.reward("bits")).reshape(-1, NUM_BITS)
    np.testing.assert_array_equal(modes, BitSequences(NUM_BITS, WORD_BITS).modes.numpy())
    # a mode is the best there is, e^β, and every bit takes β/n nats off
    task = BitSequences(NUM_BITS, WORD_BITS)
    tokens = torch.tensor([[int("".join(map(str, word)), 2) for word in modes[:1].astype(int).reshape(-1, WORD_BITS)]])
    other = tokens.clone()
    other[0, 0] ^= 1
    log_rewards = Reward(BETA, 1e-6, ramp=0.0).log_reward(task.score(torch.cat([tokens, other])))
    assert log_rewards.tolist() == pytest.approx([BETA, BETA * (1 - 1 / NUM_BITS)])


def test_other_grounds_ask_to_be_ahead_and_no_more() -> None:
    text = tables.ground_table(step_rows())
    assert "torchgfn / ours at batch 16: met: 4.00×, asked for 1×" in text


def test_a_curve_has_a_row_per_checkpoint(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.peers.worker_ours.CHECKPOINTS", 2)
    experiment = build(resolve_config([CURVES["gfn-tb"], {"model": {"width": 8}, "budget": {"steps": 4}}]))
    draw_curve(experiment)
    rows = [parse(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["iterations"] for row in rows] == [2, 4]
    assert rows[0]["cpu_seconds"] < rows[1]["cpu_seconds"]
    assert rows[1]["tv"] == pytest.approx(experiment.evaluate()["tv"])


def test_a_step_over_several_checkpoints_is_one_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.peers.worker_ours.CHECKPOINTS", 8)
    draw_curve(build(resolve_config([CURVES["gfn-tb"], {"model": {"width": 8}, "budget": {"steps": 2}}])))
    assert [parse(line)["iterations"] for line in capsys.readouterr().out.splitlines()] == [1, 2]


def test_a_worker_speaks_json_in_an_environment_of_one_thread() -> None:
    script = "import json, os, sys; print(json.dumps({'threads': os.environ['OMP_NUM_THREADS'], 'given': sys.argv[1]}))"
    assert list(work([sys.executable, "-c", script], [16])) == [{"threads": "1", "given": "16"}]


def test_a_worker_that_fails_is_not_a_result() -> None:
    with pytest.raises(WorkerError, match="exit code 3"):
        list(work([sys.executable, "-c", "raise SystemExit(3)"], []))
    with pytest.raises(WorkerError, match="said: hello"):
        parse("hello\n")
    with pytest.raises(WorkerError, match="said: 3"):
        parse("3\n")


def test_each_peer_has_its_own_interpreter(tmp_path: Path) -> None:
    (tmp_path / "sources" / "gfnx-0.0.1").mkdir(parents=True)
    (tmp_path / "sources" / "gfnx-0.0.1.tar.gz").touch()
    peers = Peers(tmp_path, tmp_path / "rewards")
    assert peers.command("ours")[0] == sys.executable
    assert peers.command("torchgfn")[0] == str(tmp_path / "bin" / "python")
    assert peers.command("gfnx")[-1] == str(tmp_path / "sources" / "gfnx-0.0.1")


def step_rows() -> list[Row]:
    """Two rounds at batch 16, the second on a machine half as fast."""
    figures = {"ours": 2.0, "gfnx": 3.0, "torchgfn": 8.0}
    return [
        {"system": system, "batch": 16, "round": number, "parameters": 9, "cpu_ms": ms * slow, "wall_ms": 2 * ms * slow}
        for number, slow in enumerate((1.0, 2.0))
        for system, ms in figures.items()
    ]


def test_ratios_are_taken_within_a_round() -> None:
    assert tables.ratios(step_rows(), "gfnx", 16, "cpu_ms") == (1.5, 1.5, 1.5)
    assert tables.spread_of([row["cpu_ms"] for row in tables.of(step_rows(), system="gfnx")]) == (4.5, 3.0, 6.0)


def test_the_step_table_says_what_was_met_and_what_was_missed() -> None:
    text = tables.step_table(step_rows())
    assert "gfnx / ours at batch 16: met: 1.50×, asked for 1×" in text
    assert "torchgfn / ours at batch 16: MISSED: 4.00×, asked for 5×" in text
    assert "batch 64" not in text


def curve(system: str, seed: int, *points: tuple[float, float]) -> list[Row]:
    return [
        {"system": system, "seed": seed, "iterations": 1, "compile_seconds": 5.0, "cpu_seconds": cpu, "tv": tv}
        for cpu, tv in points
    ]


def test_time_to_a_target_is_that_of_the_first_checkpoint_below_it() -> None:
    points = curve("gfnx", 0, (10.0, 0.3), (20.0, 0.2), (30.0, 0.15))
    assert tables.time_to(points, "tv", 0.2) == 20.0
    assert tables.time_to(points, "tv", 0.1) == math.inf


def test_a_race_compares_medians_over_seeds() -> None:
    ours = [*curve("a", 0, (1.0, 0.1)), *curve("a", 1, (2.0, 0.1)), *curve("a", 2, (9.0, 0.1))]
    theirs = [*curve("b", 0, (8.0, 0.1)), *curve("b", 1, (12.0, 0.1)), *curve("b", 2, (90.0, 0.1))]
    assert tables.race(ours, theirs, "tv", 0.2, asked=6.0) == "met: 6.00×, asked for 6×"
    assert tables.race(theirs, ours, "tv", 0.2, asked=6.0).startswith("MISSED: 0.17×")


def test_a_rival_that_never_arrives_gives_a_bound() -> None:
    ours, theirs = curve("a", 0, (2.0, 0.1)), curve("b", 0, (30.0, 0.9), (50.0, 0.8))
    said = tables.race(ours, theirs, "tv", 0.2, asked=20.0)
    assert said.startswith("met: the rival did not reach tv 0.2 in 50 CPU s, so more than 25.0×")
    assert tables.race(ours, theirs, "tv", 0.2, asked=30.0).startswith("OPEN")
    assert tables.race(theirs, ours, "tv", 0.2, asked=20.0) == "MISSED: ours does not reach tv 0.2"


def test_parts_are_kept_apart_and_a_report_names_what_is_missing(tmp_path: Path) -> None:
    stored = tmp_path / "peers.json"
    results.store(stored, "quality-gfnx", curve("gfnx", 0, (60.0, 0.1)))
    assert "not measured yet: quality-ours" in results.report(results.read(stored))
    results.store(stored, "quality-ours", curve("sgfn-kl", 0, (99.0, 0.1)))
    parts = results.store(stored, "quality-ours", curve("sgfn-kl", 0, (6.0, 0.1)))
    assert results.read(stored) == parts
    assert "gfnx / sgfn-kl: met: 10.00×, asked for 6×" in results.report(parts)
    assert "compiling gfnx's loop takes 5.0 CPU s" in results.report(parts)
    page = tmp_path / "page.md"
    page.write_text(f"before\n{results.BEGIN}\nold\n{results.END}\nafter\n", encoding="utf-8")
    results.insert(page, "new\n")
    assert page.read_text(encoding="utf-8") == f"before\n{results.BEGIN}\n```text\nnew\n```\n{results.END}\nafter\n"
    results.write_curves(tmp_path / "curves.csv", {**parts, "steps": step_rows()})
    lines = (tmp_path / "curves.csv").read_text(encoding="utf-8").splitlines()
    assert lines[1:] == ["quality-gfnx,gfnx,0,1,,60.0,,0.1,", "quality-ours,sgfn-kl,0,1,,6.0,,0.1,"]


def test_every_budget_of_the_reference_has_its_verdict() -> None:
    ours, short, long = (
        [{**row, "regret": row["tv"]} for row in rows]
        for rows in (
            curve("sgfn-kl-noise", 0, (2.0, 0.1)),
            curve("short", 0, (30.0, 0.2)),
            curve("long", 0, (50.0, 0.1)),
        )
    )
    text = tables.regret_table(ours, [*short, *long])
    assert "short / sgfn-kl: OPEN: the rival did not reach regret 0.15 in 30 CPU s" in text
    assert "long / sgfn-kl: met: 25.00×, asked for 20×" in text
