"""What pages share: data that cannot leave its script, and one file that is whole."""

import json
from pathlib import Path

import pytest

from stochflow.core.errors import DataError
from stochflow.reports.html.page import assemble, script_json, write_page


def test_data_cannot_end_its_script_and_comes_back_unchanged() -> None:
    value = {"name": "</script><!--<script>", "numbers": [1, 2.5, None]}
    text = script_json(value)
    assert "<" not in text
    assert json.loads(text) == value


def test_data_without_a_json_form_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        script_json([float("nan")])


def test_the_title_is_text_and_dollars_in_the_parts_stay() -> None:
    page = assemble("<b> $body", style="", body="costs $plotly", data=["$script"], script="$data", plotly="p()")
    assert "<title>&lt;b&gt; $body</title>" in page
    assert "costs $plotly" in page
    assert '["$script"]' in page


def test_a_page_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot be written \(No such file or directory\); choose a folder"):
        write_page(tmp_path / "nowhere" / "page.html", "")
