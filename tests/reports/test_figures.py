"""Figures hold the right numbers, are valid plotly, and say what was thinned."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from stochflow.config.schema import Config
from stochflow.evaluation.bootstrap import median_interval
from stochflow.reports import figures
from stochflow.reports.checkpoint import Channels, DesignDistribution, exact_results
from stochflow.reports.figures import NUM_POINTS, Figure
from stochflow.reports.groups import MEASURES, grouped
from stochflow.reports.reader import RunRecord, read_run, read_source

REGRET = MEASURES[0]
NASTY = "</script><img src=x onerror=alert(1)>"


def undressed(value: Any) -> Any:
    """The figure with a plain colour for every name of the style."""
    if isinstance(value, str):
        return "#000000" if value.startswith("--") else value
    if isinstance(value, list):
        return [undressed(each) for each in value]
    return {key: undressed(each) for key, each in value.items()} if isinstance(value, dict) else value


def check(figure: Figure) -> Figure:
    """Plotly itself knows every property, and JSON every number."""
    objects = pytest.importorskip("plotly.graph_objects")
    objects.Figure(undressed(figure.traces), undressed(figure.layout))
    json.dumps(figure.traces, allow_nan=False)
    return figure


def by_name(figure: Figure) -> dict[str, Any]:
    return {trace["name"]: trace for trace in figure.traces if trace.get("name")}


def test_bars_are_medians_with_intervals_over_seeds(sweep: Path) -> None:
    groups = grouped(read_source(sweep).runs)
    traces = by_name(check(figures.regret_bars(groups, REGRET)))
    assert set(traces) == {"sgfn-db", "sgfn-kl-gamma"}
    values = [json.loads((sweep / f"runs/sgfn-db-0.25-{seed}/summary.json").read_text())["regret"] for seed in range(3)]
    bar, (low, high) = traces["sgfn-db"], median_interval(values)
    assert bar["x"] == [0, 1]
    assert bar["y"][0] == pytest.approx(np.median(values), rel=1e-4)
    assert bar["error_y"]["array"][0] == pytest.approx(high - np.median(values), rel=1e-3)
    assert bar["error_y"]["arrayminus"][0] == pytest.approx(np.median(values) - low, rel=1e-3)
    assert (bar["error_y"]["array"][1], bar["error_y"]["arrayminus"][1]) == (0, 0)


def test_curves_have_a_band_only_over_several_seeds(sweep: Path) -> None:
    groups = [group for group in grouped(read_source(sweep).runs) if group.condition == "noise 0.25"]
    for along in ("trajectories", "seconds"):
        figure = check(figures.learning_curves(groups, REGRET, along, ["sgfn-db", "sgfn-kl-gamma"]))
        bands = [trace["legendgroup"] for trace in figure.traces if trace.get("fill")]
        assert bands == ["sgfn-db"]
        assert by_name(figure)["sgfn-kl-gamma"]["line"]["color"] == "--s2"
    middle = by_name(figures.learning_curves(groups, REGRET, "trajectories", ["sgfn-db", "sgfn-kl-gamma"]))["sgfn-db"]
    tables = [read_run(sweep / f"runs/sgfn-db-0.25-{seed}").metrics for seed in range(3)]
    assert middle["x"] == tables[0]["trajectories"][tables[0]["regret"].notna()].to_list()
    last = np.median([table["regret"].dropna().iloc[-1] for table in tables])
    assert middle["y"][-1] == pytest.approx(last, rel=1e-4)


@pytest.mark.parametrize(("values", "expected"), [([0.01, 0.2], "log"), ([0.1, 0.2], None), ([-0.1, 5.0], None)])
def test_an_axis_is_logarithmic_only_when_it_spans_decades(values: list[float], expected: str | None) -> None:
    frame = pd.DataFrame({"trajectories": [1, 2], "regret": values})
    record = grouped([_record(frame)])
    layout = figures.learning_curves(record, REGRET, "trajectories", ["sgfn-kl"]).layout
    assert layout["yaxis"].get("type") == expected


J, BEST_PAID = (next(measure for measure in MEASURES if measure.key == key) for key in ("j", "best_paid"))


def test_a_ceiling_that_is_known_is_drawn_as_wide_as_the_curves() -> None:
    runs = [
        _record(pd.DataFrame({"oracle_calls": [10, 20], "j": [1.0, 3.0], "regret": [6.0, 4.0 + 1e-9]})),
        _record(pd.DataFrame({"oracle_calls": [5, 15], "j": [2.0, 2.5], "regret": [5.0, 4.5]})),
    ]
    figure = check(figures.learning_curves(grouped(runs), J, "oracle_calls", ["sgfn-kl"]))
    drawn = by_name(figure)["ceiling 7"]
    assert (drawn["x"], drawn["y"], drawn["line"]["dash"]) == ([5, 20], [7, 7], "dot")
    assert (figure.title, figure.layout["xaxis"]["title"]["text"]) == ("J against oracle calls", "oracle calls")
    assert "dotted" in figure.text
    assert figure.layout["showlegend"]
    without = check(figures.learning_curves(grouped(runs), BEST_PAID, "oracle_calls", ["sgfn-kl"]))
    assert not without.traces
    assert "dotted" not in without.text


def test_one_ceiling_is_drawn_for_each_target() -> None:
    runs = [
        _record(pd.DataFrame({"oracle_calls": [1, 2], "j": [0.0, 1.0], "regret": [best, best - 1.0]}))
        for best in (3.0, 5.0)
    ]
    figure = check(figures.learning_curves(grouped(runs), J, "oracle_calls", ["sgfn-kl"]))
    assert [name for name in by_name(figure) if name.startswith("ceiling")] == ["ceiling 3", "ceiling 5"]


def _record(metrics: pd.DataFrame) -> RunRecord:
    return RunRecord(Path("a"), "a", Config(), None, metrics, pd.DataFrame(), {}, ())


def test_the_scatter_is_thinned_and_says_so(run: Path) -> None:
    distribution = exact_results(read_run(run)).distribution
    assert distribution is not None
    figure = check(figures.probability_scatter(distribution))
    traces = by_name(figure)
    assert len(traces["sampler"]["x"]) == len(traces["attainable optimum"]["y"]) == NUM_POINTS
    assert "2,000 of 65,536 sequences, drawn at random" in figure.text
    x, y = traces["target R/Z"]["x"], traces["target R/Z"]["y"]
    np.testing.assert_allclose(np.array(x) - np.array(y), distribution.log_z, rtol=1e-4)


def test_the_quantile_lines_are_over_all_sequences() -> None:
    log_rewards = np.repeat(np.arange(24.0), 101)
    log_probs = np.tile(np.arange(101.0), 24) + 1000 * log_rewards
    distribution = DesignDistribution(log_rewards, log_probs, log_probs, 1.0, None)
    traces = by_name(figures.probability_scatter(distribution))
    assert traces["sampler, median"]["x"] == list(range(24))
    assert traces["sampler, median"]["y"] == [1000 * n + 50 for n in range(24)]
    assert traces["sampler, 5 and 95 %"]["y"] == [1000 * n + 5 for n in range(24)]


def test_designs_stand_in_where_not_all_sequences_are_known(run: Path) -> None:
    samples = read_run(run).samples
    figure = check(figures.sample_scatter(samples))
    assert len(figure.traces[0]["x"]) == len(samples)
    assert f"all {len(samples)} distinct ones" in figure.text


def test_the_map_of_reach_is_in_per_cent_by_depth() -> None:
    (trace,) = check(figures.feasibility([0.0, 0.25, 1.0])).traces
    assert (trace["x"], trace["y"]) == ([0, 1, 2], [0, 25, 100])


def test_only_terms_that_the_method_logs_are_drawn(demo_sweep: Path) -> None:
    balance = figures.term_curves(read_run(demo_sweep / "runs/sgfn-db-0.25-0").metrics)
    assert [check(figure).title for figure in balance] == ["Terms of the balance (ll_diff)"]
    names = ["log flow", "log forward", "log dynamics", "log next flow", "log backward"]
    assert list(by_name(balance[0])) == names
    divergence = figures.term_curves(read_run(demo_sweep / "runs/sgfn-kl-gamma-0.25-0").metrics)
    assert [check(figure).title for figure in divergence] == ["Entropy ratio", "Dynamics loss"]
    assert figures.term_curves(pd.DataFrame()) == []


def test_terms_are_drawn_with_one_standard_deviation() -> None:
    metrics = pd.DataFrame({"trajectories": [8, 16], "a_b_mean": [1.0, 2.0], "a_b_std": [0.5, np.nan], "c_mean": 0.0})
    (figure,) = figures.term_curves(metrics)
    band, line = check(figure).traces
    assert band["y"] == [1.5, None, None, 0.5]
    assert (line["x"], line["y"], line["name"]) == ([8, 16], [1, 2], "a b")


def test_maps_of_the_channel_are_of_one_position_or_of_the_mean() -> None:
    truth = np.stack([np.eye(2), np.full((2, 2), 0.5)])
    learned = np.full((2, 2, 2), 0.5)
    channels = Channels("<C", truth, learned, is_known=False)
    first = [check(figure).traces[0] for figure in figures.channel_maps(channels, 0)]
    assert first[0]["z"] == [[1, 0], [0, 1]]
    assert first[2]["z"] == [[-0.5, 0.5], [0.5, -0.5]]
    assert (first[2]["zmin"], first[2]["zmax"]) == (-0.5, 0.5)
    assert first[0]["x"] == ["&lt;", "C"]
    mean = figures.channel_maps(channels, None)[0].traces[0]
    assert mean["z"] == [[0.75, 0.25], [0.25, 0.75]]
    (alone,) = figures.channel_maps(Channels("<C", truth, None, is_known=False), 0)
    assert check(alone).traces[0]["z"] == first[0]["z"]


def test_names_from_a_run_are_shown_and_never_read_as_tags(sweep: Path) -> None:
    for path in sweep.glob("runs/*/config.yaml"):
        path.write_text(path.read_text().replace("method: sgfn-db", f"method: {json.dumps(NASTY)}"))
    groups = grouped(read_source(sweep).runs)
    methods = list(dict.fromkeys(group.method for group in groups))
    assert any(NASTY in method for method in methods)
    drawn = [figures.regret_bars(groups, REGRET), figures.learning_curves(groups, REGRET, "seconds", methods)]
    texts = json.dumps([[*figure.traces, figure.layout] for figure in drawn])
    assert "<img" not in texts
    assert "&lt;img" in texts
