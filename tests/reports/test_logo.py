"""The logo's heights, worked by hand, and letters that cannot do harm."""

import re
from xml.etree import ElementTree

import pytest
import torch

from stochflow.reports.logo import information, logo_svg, random_information


def test_information_is_what_agreement_leaves_of_the_alphabet() -> None:
    columns = information(["AA", "AC", "AG", "AT"], num_letters=4)
    assert columns[0] == {"A": 2.0}
    assert columns[1] == dict.fromkeys("ACGT", 0.0)
    (half,) = information(["A", "A", "C", "G"], num_letters=4)
    # H = 1.5 bits of 2
    assert half == pytest.approx({"A": 0.25, "C": 0.125, "G": 0.125})


def heights(svg: str) -> list[float]:
    return [float(stretch) * 72 for stretch in re.findall(r"scale\(1 ([\d.]+)\)", svg)]


def test_letters_are_as_tall_as_their_information_with_the_frequent_on_top() -> None:
    svg = logo_svg(["A", "A", "C", "G"] * 100, num_letters=4)
    root = ElementTree.fromstring(svg)
    letters = [element.text for element in root.iter("text") if "letter" in element.get("class", "")]
    assert letters == ["C", "G", "A"]
    assert heights(svg) == pytest.approx([35, 35, 70], rel=1e-3)
    assert "0.5" in [element.text for element in root.iter("text")]


def test_long_sequences_are_broken_into_rows() -> None:
    svg = logo_svg(["A" * 45], num_letters=4)
    assert svg.count("<svg") == 3
    assert "positions 41 to 45" in svg


def test_designs_without_any_agreement_still_have_a_logo() -> None:
    assert logo_svg(["A", "C", "G", "T"], num_letters=4).count("letter") == 0


def test_letters_are_text_and_never_tags() -> None:
    root = ElementTree.fromstring(logo_svg(["<&\"'"], num_letters=2))
    letters = [element.text for element in root.iter("text") if "letter" in element.get("class", "")]
    assert letters == list("<&\"'")


def random_designs(num: int, length: int, letters: str) -> list[str]:
    drawn = torch.randint(len(letters), (num, length), generator=torch.Generator().manual_seed(0))
    return ["".join(letters[token] for token in row) for row in drawn.tolist()]


@pytest.mark.parametrize(("num", "letters"), [(100, "ACGT"), (1000, "ACDEFGHIKLMNPQRSTVWY"), (5000, "01")])
def test_random_designs_have_the_information_of_chance(num: int, letters: str) -> None:
    columns = information(random_designs(num, 200, letters), len(letters))
    found = [sum(column.values()) for column in columns]
    # 2 n ln 2 times the information is nearly χ² with K − 1 degrees of freedom, here 200 times
    share = (2 / (200 * (len(letters) - 1))) ** 0.5
    assert sum(found) / 200 == pytest.approx(random_information(num, len(letters)), rel=4 * share + 0.01)


def test_random_designs_look_flat() -> None:
    svg = logo_svg(random_designs(100, 20, "ACGT"), num_letters=4)
    # of 140 pixels
    assert max(heights(svg)) < 30
    assert sum(heights(svg)) / 20 < 20
