"""How far, how fast and how large."""

import sys
from pathlib import Path

import pytest

from stochflow.runs.monitor import throughput as meter
from stochflow.runs.monitor.throughput import Throughput, resident_memory, size_text, time_text, training_figures


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_rate_and_time_left_are_those_of_the_last_minute() -> None:
    clock = Clock()
    throughput = Throughput(clock)
    assert (throughput.rate, throughput.left) == (None, None)
    for second in range(1, 101):  # half of the work at 10 things per second …
        clock.now = 100.0 + second
        throughput.note(0.005 * second, 10.0 * second)
    assert throughput.rate == pytest.approx(10.0)
    assert (throughput.elapsed, throughput.left) == (pytest.approx(100.0), pytest.approx(100.0))
    for second in range(1, 101):  # … then slower, which is all that counts after a minute
        clock.now = 200.0 + second
        throughput.note(0.5 + 0.001 * second, 1000.0 + 2.0 * second)
    assert throughput.rate == pytest.approx(2.0)
    assert throughput.left == pytest.approx(400.0)


def test_many_steps_in_a_moment_are_counted_and_not_kept() -> None:
    clock = Clock()
    throughput = Throughput(clock)
    for step in range(1, 10_001):
        clock.now = 100.0 + 0.001 * step
        throughput.note(step / 20_000, float(step))
    assert throughput.rate == pytest.approx(1000.0, rel=1e-3)
    assert len(throughput._marks) <= 11


def test_memory_grows_with_what_is_held() -> None:
    before = resident_memory()
    assert before is not None
    held = bytearray(200_000_000)
    held[::4096] = b"x" * len(held[::4096])  # touched, or the system does not hand it out
    after = resident_memory()
    assert after is not None
    assert 150e6 < after - before < 300e6
    assert len(held) == 200_000_000


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no peak to fall back on")
def test_without_proc_the_peak_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now = resident_memory()
    monkeypatch.setattr(meter, "_STATM", tmp_path / "missing")
    peak = resident_memory()
    assert now is not None
    assert peak is not None
    assert 0.5 * now < peak < 1e12


def test_figures_are_those_that_are_known() -> None:
    clock = Clock()
    throughput = Throughput(clock)
    throughput.note(0.1, 0.0)
    clock.now += 2.0
    throughput.note(0.2, 3000.0)
    latest = {"trajectories": 3000, "oracle_calls": 5, "loss": 0.12345, "kl": 0.2, "regret": 0.1, "mean_score": 0.5}
    figures = training_figures(latest, throughput, "trajectories")
    assert figures[:2] == ["3,000 trajectories", "1,500/s"]
    assert figures[2].endswith(("MB", "GB"))
    assert figures[3:] == ["loss 0.1235", "E[score] 0.500", "KL 0.2000", "regret 0.1000"]
    estimated = {"oracle_calls": 5, "j": 7.89, "j_se": 0.1}
    assert training_figures(estimated, Throughput(clock), "oracle_calls")[-1] == "J 7.890"
    both = training_figures(estimated | {"regret": 0.1}, Throughput(clock), "oracle_calls")
    assert both[-1] == "regret 0.1000"
    assert training_figures({"oracle_calls": 5}, Throughput(clock), "oracle_calls")[0] == "5 oracle calls"
    assert len(training_figures({"oracle_calls": 5}, Throughput(clock), "oracle_calls")) == 2


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00:00"), (59.6, "0:01:00"), (3723, "1:02:03"), (None, "-:--:--"), (1e12, "-:--:--")]
)
def test_times_are_hours_minutes_and_seconds(seconds: float | None, text: str) -> None:
    assert time_text(seconds) == text


def test_sizes_are_megabytes_or_gigabytes() -> None:
    assert (size_text(512_400_000), size_text(12_345_000_000)) == ("512 MB", "12.3 GB")
