"""Rounds: what is asked, what is never asked again, and that the same history gives the same plate."""

import itertools
import shutil

import pandas as pd
import pytest
import torch
import yaml

import stochflow
from stochflow import Campaign, ConfigError, DataError
from stochflow.campaigns import campaign as module
from stochflow.campaigns.proposal import Batch


def test_a_plate_has_a_row_per_well(make):
    plate = make(batch=96, noise=0.1).ask()
    assert plate["well"].tolist()[:13] == [*(f"A{column}" for column in range(1, 13)), "B1"]
    assert (plate["id"].iloc[0], plate["id"].iloc[-1], plate["well"].iloc[-1]) == ("a1_001", "a1_096", "H12")
    assert plate["order"].nunique() == 96
    assert plate["probability"].tolist() == pytest.approx([(1 - 0.1 + 0.1 / 4) ** 4] * 96)
    assert (plate["low"] <= plate["predicted"]).all()
    assert (plate["predicted"] <= plate["high"]).all()


def test_large_batches_lie_on_large_plates(make):
    campaign = make(batch=97)
    assert campaign.ask(25)["well"].iloc[-1] == "B1"
    assert make(length=5, batch=384).ask()["well"].iloc[-1] == "P24"
    many = make(length=5, batch=96).ask(200)
    assert many.groupby("plate", sort=False).size().to_dict() == {"p1.1": 96, "p1.2": 96, "p1.3": 8}


def test_nothing_is_asked_twice_until_everything_was_asked(make):
    campaign = make(length=3)
    campaign.tell(pd.DataFrame({"sequence": ["ACG", "TTT"], "score": [1.0, 0.0]}))
    orders = [order for _ in range(6) for order in campaign.ask(10)["order"]]
    assert len(set(orders) | {"ACG", "TTT"}) == 62
    with pytest.raises(ConfigError, match=r"10 designs were asked for, and 2 of the 64 .* are left; ask for fewer"):
        campaign.ask(10)
    assert len(set(orders) | set(campaign.ask(2)["order"])) == 62
    with pytest.raises(ConfigError, match="1 design was asked for, and 0 of the 64"):
        campaign.ask(1)
    assert campaign.status().num_pending == 62


def test_constraints_hold_and_limit_an_ask(make):
    campaign = make(constraints={"fixed": "A..T", "forbid": ["AC"]})
    assert campaign.status().num_feasible == 11  # 16, but for ACAT, ACCT, ACGT, ACTT and AACT
    with pytest.raises(ConfigError, match="12 designs were asked for, and 11 of the 11"):
        campaign.ask(12)
    assert all(order[0] + order[-1] == "AT" and "AC" not in order for order in campaign.ask(11)["order"])


def test_the_same_history_gives_the_same_ask(make):
    results = pd.DataFrame({"sequence": ["ACGT", "TTTT", "GGGG"], "score": [3.0, -1.0, 0.5]})
    first, second, other = make(seed=3), make(seed=3), make(seed=4)
    for campaign in (first, second, other):
        campaign.ask(4)
        campaign.tell(results)
        campaign.tell(campaign.asked(1)[["id"]].assign(score=[1.0, 2.0, 3.0, 4.0]))
    pd.testing.assert_frame_equal(first.ask(5), Campaign.open(second.directory).ask(5))
    assert first.asked(1)["order"].tolist() != other.asked(1)["order"].tolist()


def test_earlier_asks_are_given_again(make):
    campaign = make()
    plates = [campaign.ask(3), campaign.ask(2)]
    pd.testing.assert_frame_equal(campaign.asked(1), plates[0])
    pd.testing.assert_frame_equal(campaign.asked(), plates[1])
    with pytest.raises(ConfigError, match="there is no ask 3"):
        campaign.asked(3)


def test_asks_and_tells_in_any_order(make):
    campaign = make()
    first, second = campaign.ask(4), campaign.ask(4)
    campaign.tell(second[["id"]].assign(score=2.0))
    third = campaign.ask(4)
    campaign.tell(first.assign(score=1.0).drop(columns="id"))  # the plate as it was written, by its orders
    assert set(campaign.history().orders.query("state == 'pending'")["id"]) == set(third["id"])
    assert campaign.history().orders["score"].tolist()[:8] == [1.0] * 4 + [2.0] * 4


@pytest.mark.parametrize("fault", ["taken", "twice", "infeasible"])
def test_whatever_is_proposed_nothing_wrong_is_handed_out(make, monkeypatch, fault):
    campaign = make(constraints={"forbid": ["GG"]})
    campaign.tell(pd.DataFrame({"sequence": ["ACGT"], "score": [1.0]}))
    wrong = {"taken": ["ACGT", "AAAA"], "twice": ["AAAA", "AAAA"], "infeasible": ["AGGA", "AAAA"]}[fault]

    def propose(space, evidence, taken, num, goal, seed):
        zeros = torch.zeros(2).double()
        return Batch(space.alphabet.encode(wrong), zeros, zeros, zeros, zeros, ["", ""])

    monkeypatch.setattr(module, "propose", propose)
    with pytest.raises(DataError, match="no 2 new designs were found"):
        campaign.ask(2)
    assert campaign.status().num_asks == 0


def test_the_channel_is_copied_from_its_file(tmp_path):
    path = tmp_path / "channel.yaml"
    path.write_text(yaml.safe_dump({"letters": "TGCA", "matrix": [[0.7, 0.1, 0.1, 0.1], *[[0.25] * 4] * 3]}))
    Campaign.create(tmp_path / "lab", length=3, noise=str(path))
    path.unlink()
    opened = Campaign.open(tmp_path / "lab")
    space = opened.settings.space
    assert space.channel.exact_probability(space.alphabet.encode(["TTT"])).item() == pytest.approx(0.7**3)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda campaign: campaign.ask("3"), "the number of designs is '3'; give a whole number"),
        (lambda campaign: campaign.ask(2.5), "the number of designs is 2.5; give a whole number"),
        (lambda campaign: campaign.tell(5), "int is none; give a DataFrame or the path"),
        (lambda campaign: campaign.rehearse("tfbind8", rounds=0), "0 rounds were asked for; play one at least"),
        (lambda campaign: campaign.asked(), "no ask in .* yet; ask for designs first"),
    ],
)
def test_arguments_of_another_kind_are_refused_in_one_sentence(make, call, sentence):
    campaign = make()
    with pytest.raises((ConfigError, DataError), match=sentence):
        call(campaign)
    assert campaign.status().num_ordered == 0


def test_deletions_of_a_channel_by_name_are_warned_of_and_counted(make):
    with pytest.warns(UserWarning, match="array-synthesis:0.01 deletes 0.01 .* not simulated"):
        campaign = make(noise="array-synthesis:0.01")
    assert campaign.ask(1)["probability"].item() == pytest.approx(0.99**4)
    assert Campaign.open(campaign.directory).judge(["ACGT"])["probability"].item() == pytest.approx(0.99**4)


def test_candidates_are_judged(make):
    campaign = make(constraints={"forbid": ["GG"]})
    campaign.tell(pd.DataFrame({"sequence": ["AAAA", "ACCA"], "score": [1.0, 3.0]}))
    order = campaign.ask(1)["order"][0]
    judged = campaign.judge(["aaaa", "ACCT", "GGTT", order])
    assert judged["sequence"].tolist() == ["AAAA", "ACCT", "GGTT", order]
    assert judged["nearest"].tolist()[:2] == ["AAAA", "ACCA"]
    assert judged["distance"].tolist()[:3] == [0, 1, 4]
    assert judged["measured"].tolist()[:3] == [True, False, False]
    assert judged["pending"].tolist() == [False, False, False, True]
    assert judged["feasible"].tolist() == [True, True, False, True]
    assert judged["expected"].tolist() == judged["predicted"].tolist()
    assert campaign.status().num_ordered == 1


def test_candidates_are_judged_before_anything_is_known(make):
    judged = make(noise=0.2).judge(pd.DataFrame({"sequence": ["ACGT"]}))
    assert judged["nearest"].tolist() == [""]
    assert judged["distance"].isna().all()
    assert judged["probability"].tolist() == pytest.approx([0.85**4])


def test_the_expected_score_is_a_mean_over_outcomes(make):
    campaign = make(noise=0.75)
    designs = ["".join(letters) for letters in itertools.product("ACGT", repeat=4)]
    campaign.tell(pd.DataFrame({"sequence": designs, "score": [design.count("A") / 4 for design in designs]}))
    judged = campaign.judge(["AAAA"] * 200)
    assert judged["predicted"].tolist() == pytest.approx([1.0] * 200, abs=0.01)
    # 1 − 0.75 · 3/4 of the letters stay A; five standard errors of 200 · 32 · 4 letters, and the model's own error
    assert judged["expected"].mean() == pytest.approx(0.4375, abs=5 * 0.5 / (200 * 32 * 4) ** 0.5 + 0.01)
    other = make(noise=0.75)
    other.tell(
        campaign.history()
        .results[["design", "value"]]
        .set_axis(["sequence", "score"], axis=1)
        .sample(128, random_state=0)
    )
    plate = other.ask(8)
    assert plate["expected"].tolist() == pytest.approx(other.judge(list(plate["order"]))["expected"].tolist())
    assert (plate["expected"] < plate["predicted"].max()).all()


@pytest.mark.parametrize(
    ("candidates", "sentence"),
    [
        (["ACG"], "the candidate ACG has 3 letters and designs have 4"),
        (["ACGX"], "not in the alphabet"),
        ([], "no candidates"),
        (pd.DataFrame({"dna": ["ACGT"]}), "no column 'sequence'"),
        ("nowhere.fasta", "cannot be read"),
    ],
)
def test_candidates_that_are_no_designs_are_refused(make, candidates, sentence):
    with pytest.raises(DataError, match=sentence):
        make().judge(candidates)


def test_a_rehearsal_plays_on_known_scores_and_leaves_the_campaign_alone(make):
    campaign = make(length=3)
    campaign.ask(2)
    before = (campaign.directory / "campaign.sqlite").read_bytes()
    letters = {"A": 0.0, "C": 1.0, "G": 2.0, "T": 3.0}
    words = [a + b + c for a in letters for b in letters for c in letters]
    scores = {word: sum(map(letters.get, word)) - 5.0 for word in words}
    table = pd.DataFrame({"sequence": words, "score": [scores[word] for word in words]})
    played = campaign.rehearse(table, rounds=3, batch=20)
    assert played["round"].tolist() == [1, 2, 3]
    assert played["measured"].tolist() == [20, 20, 20]
    assert played["best"].is_monotonic_increasing
    # 60 of the 62 that are left: the mean of the ten best lies between those of the ten best and the next ten
    best = sorted(scores.values(), reverse=True)
    assert sum(best[4:14]) / 10 <= played["top_10"].iloc[-1] <= sum(best[:10]) / 10
    assert (campaign.directory / "campaign.sqlite").read_bytes() == before
    pd.testing.assert_frame_equal(played, campaign.rehearse(table, rounds=3, batch=20))


def test_in_a_rehearsal_the_channel_acts_on_whole_orders_and_gaps_are_failed_wells(make):
    campaign = make(length=3, noise=0.5)
    half = pd.DataFrame({"sequence": [f"A{b}{c}" for b in "ACGT" for c in "ACGT"], "score": 1.0})
    played = campaign.rehearse(half, rounds=1, batch=40)
    assert 0 < played["measured"][0] < 40
    assert played[["mean", "best", "top_10"]].iloc[0].tolist() == [1.0] * 3


def test_a_rehearsal_on_a_task_or_a_file(make, tmp_path):
    campaign = make(length=8)
    assert len(campaign.rehearse("tfbind8", rounds=1)) == 1
    path = tmp_path / "table.csv"
    path.write_text("sequence,score\nACGTACGT,-1\nACGTACGA,2\n")
    assert campaign.rehearse(path, rounds=1)["wells"].tolist() == [8]
    with pytest.raises(DataError, match="gb1 has designs of 4 letters"):
        campaign.rehearse("gb1", rounds=1)
    with pytest.raises(DataError, match="columns sequence and score"):
        campaign.rehearse(pd.DataFrame({"sequence": ["ACGTACGT"]}))
    with pytest.raises(ConfigError, match="unknown task"):
        campaign.rehearse("tfbind9")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"alphabet": "A"}, "has 1 letters"),
        ({"length": 0}, "length"),
        ({"batch": 0}, "batch"),
        ({"seed": -1}, "seed"),
        ({"noise": "loud"}, "'loud' is not understood"),
        ({"noise": "0.1,0.2"}, "2 position matrices"),
        ({"noise": "nowhere.yaml"}, "does not exist"),
        ({"goal": "win"}, "give maximise"),
        ({"thresholds": ["tox"]}, "solubility>=0.5"),
        ({"constraints": {"gc": [0.9, 0.1]}}, "smaller first"),
        ({"constraints": {"fixed": "A"}}, "1 positions but a design has 4"),
        ({"constraints": {"forbid": ["A", "C", "G", "T"]}}, "loosen one of them"),
        ({"constraints": {"gcc": 1}}, "constraints.gcc"),
    ],
)
def test_a_campaign_that_cannot_be_is_refused_and_not_made(tmp_path, settings, sentence):
    with pytest.raises((ConfigError, DataError), match=sentence):
        Campaign.create(tmp_path / "lab", **{"length": 4} | settings)
    assert not (tmp_path / "lab").exists()


def test_a_channel_of_another_alphabet_is_refused(tmp_path):
    path = tmp_path / "channel.yaml"
    path.write_text(yaml.safe_dump({"letters": "ACGU", "matrix": [[0.25] * 4] * 4}))
    with pytest.raises(ConfigError, match="for the letters ACGU and the task has ACGT"):
        Campaign.create(tmp_path / "lab", length=4, noise=str(path))


def test_a_campaign_is_one_file_that_can_be_copied(make, tmp_path):
    campaign = make()
    campaign.ask(2)
    shutil.copytree(campaign.directory, tmp_path / "copy")
    assert stochflow.Campaign.open(tmp_path / "copy").status() == campaign.status()
    assert [path.name for path in campaign.directory.iterdir()] == ["campaign.sqlite"]


def test_less_than_one_design_cannot_be_asked_for(make):
    with pytest.raises(ConfigError, match="ask for one at least"):
        make().ask(0)
