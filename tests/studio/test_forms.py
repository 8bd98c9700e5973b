from pathlib import Path
from typing import Any

import pytest

from stochflow import ConfigError
from stochflow.studio.forms import CampaignForm, DesignRules, RunForm, read_form


def stored(key: str) -> Path:
    return Path("/uploads") / key / "table.csv"


def run(**content: Any) -> dict[str, Any]:
    return read_form(RunForm, {"name": "a", "source": "table"} | content).arguments(stored, ["lab:affinity"])


def test_a_table_becomes_arguments_of_train() -> None:
    found = run(upload="k", score_column="y", noise="0.02", budget=2.5, unit="minutes", rules={"forbid": "ggtctc, aaa"})
    assert found == {
        **{
            "method": "sgfn-kl",
            "seed": 0,
            "minutes": 2.5,
            "noise": "0.02",
            "constraints": {"forbid": ["GGTCTC", "AAA"]},
        },
        **{"table": "/uploads/k/table.csv", "sequence_column": "sequence", "score_column": "y"},
    }


def test_an_oracle_that_was_not_named_at_the_start_does_not_run() -> None:
    assert run(source="oracle", oracle="lab:affinity", length=8)["oracle"] == "lab:affinity"
    with pytest.raises(ConfigError, match="'os:system' was not named when this studio was started"):
        run(source="oracle", oracle="os:system", length=8)
    with pytest.raises(ConfigError, match="is no name of a task"):
        run(source="task", task="oracle:os:system/..")


@pytest.mark.parametrize("noise", ["/etc/passwd", "channel.yaml", "../x.csv", "0.1;", "nan", "confusion"])
def test_noise_names_no_file_but_an_upload(noise: str) -> None:
    with pytest.raises(ConfigError, match="is not understood"):
        run(noise=noise)
    assert run(noise=noise, channel="c")["noise"] == "/uploads/c/table.csv"


@pytest.mark.parametrize("noise", ["none", "0", "0.25", "dna-synthesis", "doped:0.79", "0.1,0.2", "1e-3"])
def test_noise_of_every_kind_is_taken(noise: str) -> None:
    assert run(noise=noise)["noise"] == noise


def test_one_end_of_a_gc_window_is_enough() -> None:
    assert DesignRules(gc_low=0.4).settings() == {"gc": [0.4, 1.0]}
    assert DesignRules(fixed="..atg", max_homopolymer=3, symmetric=True).settings() == {
        **{"fixed": "..ATG", "max_homopolymer": 3},
        "symmetric": True,
    }
    assert DesignRules().settings() == {}


def test_a_campaign_becomes_arguments_of_create() -> None:
    found = read_form(CampaignForm, {"name": "a", "length": 8, "goal": "target:0.7"}).arguments(stored)
    assert found == {
        **{"alphabet": "dna", "length": 8, "goal": "target:0.7", "batch": 96, "seed": 0},
        **{"noise": "none", "constraints": {}},
    }


@pytest.mark.parametrize(
    "content", [None, [], "x", {}, {"name": ""}, {"name": "a", "length": "long"}, {"name": "a", "x": 1}]
)
def test_a_wrong_form_is_one_sentence(content: Any) -> None:
    with pytest.raises(ConfigError, match="; correct it"):
        read_form(CampaignForm, content)
