"""Pictures of learning curves: the right numbers at the right places, as one well-formed file."""

from xml.etree import ElementTree

import pandas as pd
import pytest

from benchmarks.long_spaces_plot import COLOURS, HEIGHT, WIDTH, Scale, ceiling, curve, panel, picture, ticks

ROWS = pd.DataFrame(
    [
        ("motifs:YY1,24", 0.1, 100, method, seed, paid, j, 9.0, best)
        for method, seed, points in (
            ("sgfn-kl", 0, ((50, 2.0, 0.5), (100, 4.0, 0.8))),
            ("sgfn-kl", 1, ((50, 4.0, 0.5), (100, 8.0, 0.8))),
            ("genetic", 0, ((50, 1.0, 0.9), (100, 1.0, 1.0))),
        )
        for paid, j, best in points
    ],
    columns=["task", "noise", "calls", "method", "seed", "paid", "j", "j_ceiling", "best_paid"],
)


def places(text: str, tag: str) -> list[list[tuple[float, float]]]:
    """Points of all elements of a tag."""
    root = ElementTree.fromstring(f"<svg>{text}</svg>")
    pairs = [[point.split(",") for point in element.attrib["points"].split()] for element in root.iter(tag)]
    return [[(float(x), float(y)) for x, y in points] for points in pairs]


def test_a_curve_is_the_median_over_seeds_in_a_band() -> None:
    along, up = Scale(0, 100, 0, 100), Scale(0, 10, 100, 0)
    drawn = curve(ROWS[ROWS["method"] == "sgfn-kl"], "j", along, up, "#000")
    assert places(drawn, "polyline") == [[(50, 70), (100, 40)]]
    assert places(drawn, "polygon") == [[(50, 60), (100, 20), (100, 60), (50, 80)]]
    alone = curve(ROWS[ROWS["method"] == "genetic"], "j", along, up, "#000")
    assert places(alone, "polygon") == []


def test_the_ceiling_is_drawn_where_it_is_known() -> None:
    assert ceiling(ROWS, "j") == 9.0
    assert ceiling(ROWS, "best_paid") == 1.0
    unknown = ROWS.assign(task="rna-bind:RNA1,50", j_ceiling=None)
    assert [ceiling(unknown, measure) for measure in ("j", "best_paid")] == [None, None]
    assert "ceiling" in panel(ROWS, "j", "", "")
    assert "ceiling" not in panel(unknown, "j", "", "")


@pytest.mark.parametrize("measure", ["j", "best_paid"])
def test_nothing_lies_outside_its_panel(measure: str) -> None:
    points = [point for line in places(panel(ROWS, measure, "", ""), "polyline") for point in line]
    assert len(points) == 4
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)


def test_a_picture_has_a_panel_for_every_case_and_measure_and_names_its_methods() -> None:
    rows = pd.concat([ROWS.assign(noise=noise) for noise in (0.0, 0.1, 0.25, 0.5)])
    root = ElementTree.fromstring(picture(rows))
    words = ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert words.count("paid calls") == 8
    assert [word for word in words if "α" in word] == [
        f"motifs:YY1,24, α = {noise}" for noise in ("0", "0.1", "0.25", "0.5")
    ]
    assert {"sgfn-kl", "genetic", "ceiling"} <= set(words)
    assert "mcmc" not in words
    assert len(set(COLOURS.values())) == len(COLOURS)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 8000, [0, 2000, 4000, 6000, 8000]), (-0.1, 1.02, [0, 0.5, 1.0]), (3, 3.4, [3.0, 3.1, 3.2, 3.3, 3.4])],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high, 4) == pytest.approx(expected)
