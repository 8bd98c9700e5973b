"""Plate maps, FASTA and order sheets, read back."""

import openpyxl
import pandas as pd
import pytest

from stochflow import ConfigError


def test_a_plate_map_has_every_order_in_its_well(make, tmp_path):
    campaign = make(batch=96)
    plate = campaign.ask(14)
    grid = pd.read_csv(campaign.export(tmp_path / "map.csv", "map"), index_col="p1")
    assert grid.shape == (8, 12)
    assert grid.loc["A"].tolist() == plate["order"].tolist()[:12]
    assert grid.loc["B"].dropna().tolist() == plate["order"].tolist()[12:]


def test_a_large_plate_has_sixteen_rows(make, tmp_path):
    campaign = make(batch=384)
    campaign.ask(30)
    sheet = openpyxl.load_workbook(campaign.export(tmp_path / "map.xlsx", "map"))["p1"]
    assert (sheet.max_row, sheet.max_column) == (17, 25)
    assert sheet["A17"].value == "P"


def test_a_workbook_has_one_sheet_per_plate(make, tmp_path):
    campaign = make(length=5, batch=96)
    plate = campaign.ask(100)
    book = openpyxl.load_workbook(campaign.export(tmp_path / "order.xlsx", "idt"))
    assert book.sheetnames == ["p1.1", "p1.2"]
    rows = [row for sheet in book for row in sheet.iter_rows(min_row=2, values_only=True)]
    assert rows == list(plate[["well", "id", "order"]].itertuples(index=False, name=None))
    with pytest.raises(ConfigError, match=r"one plate and this ask has 2; give a name with .xlsx"):
        campaign.export(tmp_path / "order.csv", "idt")


def test_order_sheets_have_the_columns_of_the_vendors(make, tmp_path):
    campaign = make()
    order = campaign.ask(2)["order"][0]
    assert campaign.export(tmp_path / "idt.csv", "idt").read_text().splitlines()[:2] == [
        "Well Position,Name,Sequence",
        f"A1,a1_001,{order}",
    ]
    assert campaign.export(tmp_path / "t.csv", "twist").read_text().splitlines()[:2] == [
        "name,sequence",
        f"a1_001,{order}",
    ]


def test_any_ask_can_be_exported(make, tmp_path):
    campaign = make()
    first = campaign.ask(2)
    campaign.ask(3)
    again = pd.read_csv(campaign.export(tmp_path / "plate.csv", ask=1))
    pd.testing.assert_frame_equal(again, first, check_dtype=False)
    assert campaign.export(tmp_path / "all.fasta", "fasta").read_text().count(">a2_") == 3


def test_what_cannot_be_exported_is_refused(make, tmp_path):
    campaign = make(alphabet="protein")
    with pytest.raises(ConfigError, match="there is no ask in"):
        campaign.export(tmp_path / "plate.csv")
    campaign.ask(1)
    for layout, name, sentence in (
        ("idt", "a.csv", "are for DNA"),
        ("genbank", "a.csv", "choose one of: plate, map, fasta, idt, twist"),
        ("map", "a.pdf", "must end with .csv or .xlsx"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            campaign.export(tmp_path / name, layout)
    assert list(tmp_path.glob("a.*")) == []
