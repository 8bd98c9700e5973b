"""Wells where they lie: scores in their cells, failed, pending and control wells marked, plates as large as needed."""

import pandas as pd

from stochflow.campaigns.report.plate_maps import plate_figures, plate_maps, score_range
from tests.campaigns.conftest import Make


def marks(figure):
    return {trace["name"]: list(zip(trace["x"], trace["y"], strict=True)) for trace in figure.traces[1:]}


def test_wells_have_their_scores_and_marks(make: Make) -> None:
    campaign = make(batch=14)
    plate = campaign.ask()
    told = plate[["id"]].assign(score=range(14), failed="").head(13)
    told = told.astype({"score": object})
    told.loc[1, ["score", "failed"]] = [None, "yes"]
    control = pd.DataFrame(
        {"sequence": ["standard"], "score": [-9.0], "control": ["yes"], "plate": ["p1"], "well": ["H12"]}
    )
    campaign.tell(told)
    campaign.tell(control)
    (found,) = plate_maps(campaign.history())
    ends = score_range([found])
    predicted, measured = plate_figures(found, 14, ends)
    grid = measured.traces[0]["z"]
    assert (len(grid), len(grid[0])) == (8, 12)
    assert grid[0] == [0, None, *range(2, 12)]
    assert (grid[1][0], grid[1][1], grid[7][11]) == (12, None, -9)
    assert marks(measured) == {"failed": [(1, 0)], "pending": [(1, 1)], "control": [(11, 7)]}
    assert ends == (-9.0, 12.0)
    assert predicted.traces[0]["z"][7][11] is None
    assert len(predicted.traces) == 1


def test_wells_of_a_larger_plate_and_strange_names(make: Make) -> None:
    campaign = make()
    rows = {
        "sequence": ["AAAA", "CCCC", "GGGG"],
        "score": [1.0, 2.0, 3.0],
        "plate": "<b>x",
        "well": ["a01", "P24", "Z9"],
    }
    campaign.tell(pd.DataFrame(rows))
    (found,) = plate_maps(campaign.history())
    (figure,) = plate_figures(found, 8, (1.0, 3.0))
    grid = figure.traces[0]["z"]
    assert (len(grid), len(grid[0]), grid[0][0], grid[15][23]) == (16, 24, 1, 2)
    assert found.num_elsewhere == 1


def test_a_plate_without_a_known_well_is_empty(make: Make) -> None:
    campaign = make()
    campaign.tell(pd.DataFrame({"sequence": ["AAAA"], "score": [1.0], "plate": "tube", "well": ["rack 3"]}))
    (found,) = plate_maps(campaign.history())
    (figure,) = plate_figures(found, 8, score_range([found]))
    assert found.num_elsewhere == 1
    assert {value for row in figure.traces[0]["z"] for value in row} == {None}


def test_replicates_of_a_well_are_joined_and_plates_come_latest_first(make: Make) -> None:
    campaign = make(batch=1)
    first = campaign.ask()
    campaign.tell(pd.DataFrame({"id": [first["id"][0]] * 2, "score": [1.0, 4.0]}))
    campaign.ask()
    latest, earlier = plate_maps(campaign.history())
    assert (latest.name, earlier.name) == ("p2", "p1")
    assert earlier.wells["score"].tolist() == [2.5]
    assert latest.wells["state"].tolist() == ["pending"]
