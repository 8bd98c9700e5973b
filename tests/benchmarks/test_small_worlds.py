"""Twenty of the small worlds, trained briefly: none is left in a corner."""

from pathlib import Path

import pandas as pd
import pytest

from benchmarks import small_worlds
from benchmarks.small_worlds import CHANNELS, NUM_WORLDS, WORST, Case, measured, world_of
from stochflow.experiments.build import build
from stochflow.experiments.launch import resolve_config

BRIEF = {
    "model": {"width": 32, "num_layers": 1},
    "optimiser": {"batch_size": 256, "updates": 8, "learning_rate": 0.02},
    "dynamics": {"learning_rate": 0.1, "rounds": 4},
    "budget": {"steps": 16},
}
# every shape of at most 600 sequences
BRIEFLY_LEARNED = [number for number in range(25) if (2 + number % 5) ** (1 + number // 5) <= 600]


def test_the_worlds_are_as_the_benchmark_says() -> None:
    worlds = [world_of(number) for number in range(NUM_WORLDS)]
    assert {(world.num_tokens, world.length) for world in worlds[:25]} == {
        (num_tokens, length) for num_tokens in range(2, 7) for length in range(1, 6)
    }
    with_gaps = [world for world in worlds if len(world.scores) < world.num_tokens**world.length]
    assert len(with_gaps) == pytest.approx(NUM_WORLDS / 3, abs=3)
    assert {world.channel["kind"] for world in with_gaps} == set(CHANNELS)
    assert len(BRIEFLY_LEARNED) == 20
    assert {worlds[number].channel["kind"] for number in BRIEFLY_LEARNED} == set(CHANNELS)
    for world in worlds:
        assert all(0.0 < score <= 1.0 for score in world.scores.values())
        assert set("".join(world.scores)) <= set(world.letters)


@pytest.mark.parametrize("number", BRIEFLY_LEARNED)
def test_a_small_world_is_learned(number: int, tmp_path: Path) -> None:
    world = world_of(number)
    table = {"file": str(world.write(tmp_path / "world.csv")), "alphabet": world.letters, "gap_score": 0.0}
    settings = {"task": "table", "table": table, "channel": world.channel, "feedback": "step"}
    experiment = build(resolve_config([BRIEF, settings]))
    while not experiment.trainer.finished:
        experiment.trainer.train_step()
    assert experiment.truth is not None
    regret = experiment.truth.evaluate(experiment.policy)["regret"]
    assert -1e-6 < regret < WORST


def test_a_second_call_runs_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Case] = []

    def rows(cases: list[Case], jobs: int) -> list[dict[str, float]]:
        ran.extend(cases)
        return [{"world": case.world, "seed": case.seed, "regret": 0.001} for case in cases]

    monkeypatch.setattr(small_worlds, "_rows", rows)
    path = tmp_path / "results" / "found.csv"
    measured([Case(1, 0), Case(0, 0)], path, 1)
    frame = measured([Case(1, 0), Case(0, 0), Case(0, 1)], path, 1)
    assert ran == [Case(1, 0), Case(0, 0), Case(0, 1)]
    assert frame[["world", "seed"]].to_numpy().tolist() == [[0, 0], [0, 1], [1, 0]]
    assert pd.read_csv(path).equals(frame)
