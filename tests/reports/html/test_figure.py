"""Traces that charts share."""

from stochflow.reports.html.figure import axis, band, line


def test_a_band_goes_along_its_upper_line_and_back_along_its_lower_one() -> None:
    trace = band("<b>", [0, 1], [1.0, 2.0], [3.0, 4.0], "--s1 0.2")
    assert trace["x"] == [0, 1, 1, 0]
    assert trace["y"] == [3.0, 4.0, 2.0, 1.0]
    assert trace["fillcolor"] == "--s1 0.2"
    assert trace["legendgroup"] == line("<b>", [0], [1.0], "--s1")["name"] == "&lt;b&gt;"


def test_a_line_of_one_point_has_a_marker() -> None:
    assert [line("a", x, x, "--s1")["mode"] for x in ([0], [0, 1])] == ["lines+markers", "lines"]


def test_an_axis_has_its_title_and_what_is_given() -> None:
    assert axis("nats", rangemode="tozero") == {"title": {"text": "nats"}, "rangemode": "tozero"}
