"""Elements of a page: lists that show one content at a time."""

import re

import pytest

from stochflow.reports.html.markup import choices


def test_each_combination_of_options_has_its_content_and_the_first_is_visible() -> None:
    page = choices("s", {"Letter": ["a", "b<"], "Number": ["1", "2"]}, ["a1", "a2", "b1", "b2"])
    parts = re.findall(r'<div data-part="s" data-choice="([^"]*)"( hidden)?>(\w+)</div>', page)
    assert parts == [("0-0", "", "a1"), ("0-1", " hidden", "a2"), ("1-0", " hidden", "b1"), ("1-1", " hidden", "b2")]
    assert page.count("<label>") == 2
    assert '<option value="1">b&lt;</option>' in page


def test_a_list_with_one_option_is_hidden() -> None:
    assert choices("s", {"Letter": ["a"]}, ["content"]).count("<label hidden>") == 1


def test_every_combination_needs_a_content() -> None:
    with pytest.raises(ValueError, match="zip"):
        choices("s", {"Letter": ["a", "b"]}, ["content"])
