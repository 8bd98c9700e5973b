"""The page of a campaign, whatever there is to say, and what noise cost."""

import math
from pathlib import Path

import pandas as pd
import pytest
import torch

from stochflow import Campaign, ConfigError
from stochflow.campaigns.report.noise_cost import noise_bars, noise_costs
from stochflow.campaigns.report.page import campaign_body
from stochflow.campaigns.report.rounds import rounds_of
from stochflow.reports.html.page import script_json
from tests.campaigns.conftest import Make

HEADINGS = ["Rounds", "Predictions", "The next plate", "Plates", "Logos", "Noise", "The best"]


def body(campaign: Campaign) -> str:
    """The body of a campaign's page, after its figures have become JSON."""
    _, found, charts = campaign_body(campaign.history(), campaign.settings, "lab")
    script_json(charts.figures)
    assert all(f"<h2>{heading}</h2>" in found for heading in HEADINGS)
    assert found.count("data-figure") == len(charts.figures)
    return found


def measured(num: int, length: int = 4) -> pd.DataFrame:
    """Evenly spaced designs, whose score counts G and is negative."""
    letters = torch.cartesian_prod(*[torch.arange(4)] * length)[:: 4**length // num][:num]
    sequences = ["".join("ACGT"[letter] for letter in row) for row in letters.tolist()]
    return pd.DataFrame({"sequence": sequences, "score": (letters == 2).double().sum(dim=1).numpy() - 10.0})


def test_a_campaign_that_has_only_begun_has_a_page(make: Make) -> None:
    campaign = make()
    assert "Nothing was told and nothing was asked for yet." in body(campaign)
    plate = campaign.ask()
    page = body(campaign)
    assert "All 8 orders; none has a score yet." in page
    assert "No predicted design has been measured" in page
    campaign.tell(plate[["id"]].assign(score=None, failed="yes"))
    assert "<h3>Failed</h3><b>8</b>" in body(campaign)


def test_one_result_is_a_page(make: Make) -> None:
    campaign = make()
    campaign.tell(pd.DataFrame({"sequence": ["ACGT"], "score": [-3.5]}))
    page = body(campaign)
    assert "<h3>Best score</h3><b>-3.50 <small>ACGT</small></b>" in page
    assert "No order is pending" in page


def test_rounds_with_negative_scores_and_several_properties_under_noise(make: Make) -> None:
    campaign = make(noise=0.1, thresholds=["toxicity<=0.5", "score>=-100"])
    campaign.tell(measured(32).assign(toxicity=0.2))
    plate = campaign.ask()
    observed = ["TTTT" if row < 2 else order for row, order in enumerate(plate["order"])]
    campaign.tell(plate[["id"]].assign(score=-8.0, toxicity=[0.9] * 7 + [None], observed=observed))
    campaign.ask()
    page = body(campaign)
    assert "toxicity and score" in page
    assert "6 of 8 sequenced outcomes are what was ordered." in page
    assert "By the model, noise lowers the mean score of a round by" in page


def test_outcomes_of_another_length_and_a_target_with_many_large_plates(make: Make) -> None:
    campaign = make(alphabet="protein", goal="target:0.5", batch=384, length=3)
    plate = campaign.ask(385)
    told = plate[["id"]].assign(score=0.25, observed=plate["order"])
    told.loc[[0, 1], "observed"] = ["AC", "ACDE"]
    campaign.tell(told)
    page = body(campaign)
    assert "p1.2" in page
    assert "The 383 best measured sequences, with all that tie" in page
    assert "383 of 385 sequenced outcomes are what was ordered." in page


def test_the_expected_cost_of_noise_is_that_of_the_channel(make: Make) -> None:
    campaign = make(noise=0.2)
    campaign.tell(measured(85))
    plate = campaign.ask(8)
    (_, pending), evidence = rounds_of(campaign.history(), campaign.settings), campaign.history().evidence()
    (cost,) = noise_costs([pending], evidence, campaign.settings.space, set())
    # a slip of 0.2 to one of four letters takes 0.15 of every G, each of which scores 1, and gives 0.05 elsewhere
    num_g = plate["order"].str.count("G").mean()
    assert cost.written == pytest.approx(num_g - 10, abs=0.2)
    assert cost.written - cost.expected == pytest.approx(0.15 * num_g - 0.05 * (4 - num_g), abs=0.25)
    assert math.isnan(cost.outcomes)


def test_the_measured_cost_of_noise_is_between_sequenced_wells(make: Make) -> None:
    campaign = make(noise=0.2)
    plate = campaign.ask(4)
    scores = [4.0, 2.0, 2.0, 0.0]
    observed = [plate["order"][0], plate["order"][1], "TTTT", "AAAA"]
    campaign.tell(plate[["id"]].assign(score=scores, observed=observed))
    history, space = campaign.history(), campaign.settings.space
    rounds = rounds_of(history, campaign.settings)
    (cost,) = noise_costs(rounds, history.evidence(), space, set(plate["order"]))
    assert (cost.exact, cost.num_exact, cost.outcomes, cost.num_outcomes) == (3.0, 2, 2.0, 4)
    assert cost.exact_reach == pytest.approx(12.706 * 2**0.5 / 2**0.5, rel=1e-3)
    assert math.isnan(cost.written)  # four measurements say nothing
    assert [trace["name"] for trace in noise_bars([cost]).traces] == ["measured, made as written", "measured, all"]


def test_the_page_is_written_to_a_file_of_its_own(make: Make, tmp_path: Path) -> None:
    campaign = make()
    assert campaign.report() == campaign.directory / "report.html"
    assert campaign.report(tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    with pytest.raises(ConfigError, match=r"give a name that ends in \.html"):
        campaign.report(tmp_path / "page.csv")


def test_hostile_text_is_escaped(make: Make) -> None:
    campaign = make(alphabet="<a>b", length=3)
    campaign.tell(
        pd.DataFrame({"sequence": ["<a>", "bbb"], "score": [1.0, 2.0], "plate": "<img src=x>", "well": ["A1", "A2"]})
    )
    page = body(campaign)
    assert "<a>" not in page
    assert "<img" not in page
