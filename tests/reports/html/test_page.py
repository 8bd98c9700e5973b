"""What pages share: data that cannot leave its script, and one file that is whole."""

import json
from pathlib import Path

import pytest

from stochflow.core.errors import ConfigError
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
    page = assemble("<b> $body", "costs $plotly", ["$data"], "p()")
    assert "<title>&lt;b&gt; $body</title>" in page
    assert "costs $plotly" in page
    assert '["$data"]' in page


def test_a_page_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"cannot write to .*page\.html \(No such file or directory\); choose another"
    ):
        write_page(tmp_path / "nowhere" / "page.html", "")
