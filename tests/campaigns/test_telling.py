"""Results as laboratories give them: partial, late, repeated, contradictory, and wrong."""

import hashlib
import random
import sqlite3
from contextlib import closing

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stochflow import Campaign, DataError


def told(campaign, text):
    """Tell a CSV that is written down here."""
    path = campaign.directory.parent / f"{abs(hash(text))}.csv"
    path.write_text(text, encoding="utf-8")
    return campaign.tell(path)


def known(campaign):
    """Scores by sequence."""
    evidence = campaign.history().evidence()
    return dict(zip(campaign.settings.space.alphabet.decode(evidence.tokens), evidence.scores.tolist(), strict=True))


def rows(campaign, table):
    with closing(sqlite3.connect(campaign.directory / "campaign.sqlite")) as connection:
        return connection.execute(f"SELECT * FROM {table}").fetchall()


def test_replicates_are_joined_and_their_scatter_is_pooled(make):
    campaign = make()
    told(campaign, "sequence,score\nACGT,1\nACGT,3\nAAAA,-5\nCCCC,10\nCCCC,14\nCCCC,12\n")
    evidence = campaign.history().evidence()
    assert known(campaign) == {"ACGT": 2.0, "AAAA": -5.0, "CCCC": 12.0}
    # squared errors 1 + 1 + 0 + 4 + 4 + 0 over 1 + 0 + 2 degrees of freedom
    pooled = 10 / 3
    torch.testing.assert_close(evidence.variances, torch.tensor([pooled / 2, pooled, pooled / 3]).double())


def test_variances_are_taken_as_told(make):
    campaign = make()
    told(campaign, "sequence,score,variance\nACGT,1,0.5\nAAAA,2,0.25\nGGGG,2,\n")
    torch.testing.assert_close(campaign.history().evidence().variances, torch.tensor([0.5, 0.25, 0.375]).double())


def test_without_replicates_variances_are_unknown(make):
    campaign = make()
    told(campaign, "sequence,score\nACGT,1\nAAAA,2\n")
    assert campaign.history().evidence().variances is None


def test_the_same_file_twice_changes_nothing_and_says_so(make):
    campaign = make()
    text = "sequence,score\nACGT,1\n"
    assert str(told(campaign, text)) == "Tell 1: 1 new value, 1 of designs that were not ordered here."
    before = rows(campaign, "results")
    assert str(told(campaign, text)) == "Nothing new: all of this was told before."
    assert rows(campaign, "results") == before
    assert len(rows(campaign, "tells")) == 1


def test_a_file_that_has_grown_adds_what_is_new(make):
    campaign = make()
    told(campaign, "sequence,score\nACGT,1\nACGT,2\n")
    grown = told(campaign, "sequence,score\nACGT,1\nACGT,2\nACGT,6\nCCCC,4\n")
    assert (grown.num_new, grown.num_known) == (2, 2)
    assert known(campaign) == {"ACGT": 3.0, "CCCC": 4.0}


def test_a_plate_told_with_other_values_is_refused_and_the_wells_are_named(make):
    campaign = make()
    plate = campaign.ask()
    campaign.tell(plate[["id"]].assign(score=range(8)))
    other = plate[["plate", "well", "order"]].assign(score=[0, 1, 2.5, 3, 4, 5, 6, 7.5])
    with pytest.raises(DataError, match=r"p1 A3 \(2.5, before 2\), p1 A8 \(7.5, before 7\); .* undo"):
        campaign.tell(other)
    assert sorted(known(campaign).values()) == list(range(8))
    assert len(rows(campaign, "tells")) == 1
    # as a replicate of its own, or after an undo, it is welcome
    campaign.tell(other.assign(replicate="second"))
    assert sorted(known(campaign).values()) == [0, 1, 2.25, 3, 4, 5, 6, 7.25]


def test_empty_cells_are_failed_wells_until_a_value_comes_late(make):
    campaign = make()
    names = campaign.ask()["id"].tolist()
    told(campaign, f"id,score\n{names[0]},1\n{names[1]},\n")
    assert campaign.status().num_failed == 1
    told(campaign, f"id,score\n{names[0]},\n{names[1]},2\n")  # and an empty cell takes nothing back
    status = campaign.status()
    assert (status.num_failed, status.num_measured, status.num_pending) == (0, 2, 6)
    with pytest.raises(DataError, match="no value, before 2"):
        told(campaign, f"id,failed\n{names[1]},yes\n")


def test_an_observed_sequence_may_come_after_its_score(make):
    campaign = make()
    plate = campaign.ask(1)
    campaign.tell(plate[["id"]].assign(score=0.5))
    assert list(known(campaign)) == plate["order"].tolist()
    campaign.tell(plate[["id"]].assign(observed="GGGG"))
    assert known(campaign) == {"GGGG": 0.5}
    with pytest.raises(DataError, match="p1 A1"):
        campaign.tell(plate[["id"]].assign(observed="GGGC", score=0.5))


def test_observed_sequences_of_another_length_are_kept_but_are_no_evidence(make):
    campaign = make()
    plate = campaign.ask(2)
    campaign.tell(plate[["id"]].assign(score=0.5, observed=["GGG", "GGGG"]))
    assert known(campaign) == {"GGGG": 0.5}
    assert campaign.status().num_pending == 0


def test_controls_are_kept_apart(make):
    campaign = make()
    told(campaign, "sequence,score,control,plate,well\nblank,0.01,yes,p9,H12\nACGT,2,no,p9,A1\n")
    assert known(campaign) == {"ACGT": 2.0}
    assert campaign.status().num_controls == 1


def test_undo_takes_the_last_tell_back_and_records_it(make):
    campaign = make()
    first, second = "sequence,score\nACGT,1\n", "sequence,score\nCCCC,2\n"
    told(campaign, first)
    told(campaign, second)
    assert campaign.undo()[0] == 2
    assert known(campaign) == {"ACGT": 1.0}
    assert told(campaign, second).tell == 3
    assert (campaign.undo()[0], campaign.undo()[0]) == (3, 1)
    assert known(campaign) == {}
    assert len(rows(campaign, "results")) == 3
    with pytest.raises(DataError, match="nothing to take back"):
        campaign.undo()


def test_an_undone_plate_is_pending_again(make):
    campaign = make()
    campaign.tell(campaign.ask()[["id"]].assign(score=1.0))
    campaign.undo()
    assert campaign.status().num_pending == 8


def test_who_when_and_from_which_file_is_recorded(make, monkeypatch):
    monkeypatch.setenv("LOGNAME", "rosalind")
    campaign = make()
    path = campaign.directory / "plate 1.csv"
    path.write_text("sequence,score\nACGT,1\n")
    campaign.tell(path)
    ((tell, file, sha256, who, at),) = rows(campaign, "tells")
    assert (tell, file, who, at[-6:]) == (1, "plate 1.csv", "rosalind", "+00:00")
    assert sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_properties_with_thresholds_are_read_and_the_best_keeps_them(make):
    campaign = make(thresholds=["tox<=0.5"])
    told(campaign, "Sequence,Score,Tox,comment\nACGT,9,0.9,a\nCCCC,5,0.5,b\nGGGG,4,,c\n")
    evidence = campaign.history().evidence()
    assert evidence.properties["tox"].nan_to_num(-1).tolist() == [0.9, 0.5, -1.0]
    assert (campaign.status().best, campaign.status().best_score) == ("CCCC", 5.0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("id,score\na7_001,1\n", "names the order 'a7_001', which was never asked for, in line 2"),
        ("sequence,score\nACG,1\n", "has a sequence of 3 letters, and designs have 4, in line 2"),
        ("sequence,score\nACGT,1\nACGX,1\n", r"letters outside the alphabet ACGT \(X\), in line 3"),
        ("sequence,observed,score\nACGT,ACNN,1\n", r"outside the alphabet ACGT \(N\)"),
        ("sequence,score\nACGT,high\n", "'high' in the column 'score' in line 2, which is no number"),
        ("sequence,score\nACGT,inf\n", "no number; correct it, or leave it empty for a failed well"),
        ("sequence,score\nACGT,1_0\n", "no number"),
        ("sequence,score,variance\nACGT,1,-1\n", "a variance is not negative"),
        ("sequence,score,failed\nACGT,1,perhaps\n", "write yes or no"),
        (
            "sequence,score,failed\nACGT,1.2,yes\n",
            "'1.2' in the column 'score' in line 2 and says that the well failed",
        ),
        ("sequence;score\nACGT;1,5\n", "separates its columns by semicolons; save it with commas"),
        ('sequence,score\nACGT,"1,5"\n', "in line 2, which has a decimal comma; write 1.5, or leave it empty"),
        ("sequence,score\nACGT,1e308\n", "in line 2, which is too large; correct it"),
        ("sequence,score\n", "no row below its header"),
        ("", "is empty"),
        ("sequence,score\nACGT,1,2\n", "cannot be read as a table"),
        ("dna,score\nACGT,1\n", "neither a column 'sequence' nor 'id', only dna, score"),
        ("sequence,value\nACGT,1\n", "no column 'score', only sequence, value"),
        ("sequence,score,Score\nACGT,1,1\n", "several columns 'score'"),
        ("sequence,score\nACGT,\0\n", "not a text file"),
        ("sequence,replicate,score\nACGT,a,1\nACGT,a,2\n", r"ACGT \(2, before 1\)"),
    ],
)
def test_wrong_tables_are_refused_in_one_sentence_and_nothing_is_taken(make, text, sentence):
    campaign = make()
    with pytest.raises(DataError, match=sentence) as caught:
        told(campaign, text)
    assert ";" in str(caught.value)
    assert rows(campaign, "tells") == rows(campaign, "results") == []


def test_an_id_belongs_to_the_well_it_was_ordered_in(make):
    campaign = make()
    design = campaign.ask(2)["order"].iloc[0]
    for place, wells in (("p1,B7", "p1 B7"), ("p2,A1", "p2 A1"), (",A2", "A2"), ("pläte,", "pläte")):
        with pytest.raises(DataError, match=f"has a1_001 in {wells}, and it was ordered in p1 A1 .* in line 2"):
            told(campaign, f"id,plate,well,score\na1_001,{place},1\n")
    assert rows(campaign, "tells") == []
    assert told(campaign, "id,well,score\na1_001,a01,1\n").num_new == 1
    assert told(campaign, f"sequence,plate,well,score\n{design},again,H12,2\n").num_new == 1
    assert known(campaign) == {design: 1.5}


def test_an_id_with_another_sequence_is_refused(make):
    campaign = make()
    campaign.ask(1)
    order = campaign.asked(1)["order"][0]
    other = "AAAA" if order != "AAAA" else "CCCC"
    with pytest.raises(DataError, match=f"says {other} where the order a1_001 is {order}"):
        told(campaign, f"id,sequence,score\na1_001,{other},1\n")


def test_a_file_that_is_not_there_is_refused(make):
    with pytest.raises(DataError, match="cannot be read"):
        make().tell("nowhere.csv")


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["AA", "AC", "CA", "CC"]), st.integers(-9, 9)), min_size=1), st.integers(0, 99)
)
def test_however_results_are_divided_and_ordered_the_evidence_is_the_same(tmp_path_factory, measured, seed):
    rng = random.Random(seed)
    frame = pd.DataFrame(measured, columns=["sequence", "score"])
    frame["replicate"] = [f"r{row}" for row in range(len(frame))]
    campaign = Campaign.create(tmp_path_factory.mktemp("lab"), alphabet="AC", length=2)
    parts = rng.choices(range(3), k=len(frame))
    for part in rng.sample(range(3), 3):
        for _ in range(rng.randint(1, 2)):
            if len(chosen := frame[[each == part for each in parts]]):
                campaign.tell(chosen)
    assert known(campaign) == frame.groupby("sequence")["score"].mean().to_dict()
