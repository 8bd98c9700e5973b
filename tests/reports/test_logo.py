"""The logo's heights, worked by hand, and letters that cannot do harm."""

import re
from xml.etree import ElementTree

import pytest

from stochflow.reports.logo import information, logo_svg


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
    svg = logo_svg(["A", "A", "C", "G"], num_letters=4)
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
