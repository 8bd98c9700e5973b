"""Campaigns that are killed while they ask and tell: nothing is lost, and no pending design is handed out twice."""

import os
import random
from pathlib import Path

import pandas as pd

from stochflow import Campaign
from tests.faults.harness import Machine

# 200 kills and more: FAULT_KILLS=17
KILLS = 12 * int(os.environ.get("FAULT_KILLS", "1"))
BATCH = 5


def facts(campaign: Campaign) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Orders as they were asked, and all that was told."""
    history = campaign.history()
    orders = history.orders.drop(columns=["state", "score"])
    return orders, history.results.drop(columns=["tell", "line"])


def assert_kept(before: pd.DataFrame, after: pd.DataFrame, step: int) -> bool:
    """All that was there is there, unchanged, and a whole step was added or nothing; whether it was."""
    assert len(after) - len(before) in (0, step)
    pd.testing.assert_frame_equal(after.iloc[: len(before)], before, check_dtype=False)
    return len(after) > len(before)


def results_of(campaign: Campaign, folder: Path, rng: random.Random) -> Path:
    """A file of results for some pending orders."""
    pending = campaign.history().pending.head(BATCH)
    scores = [rng.gauss(0.0, 1.0) for _ in range(len(pending))]
    path = folder / "results.csv"
    path.write_text(pending[["id"]].assign(score=scores).to_csv(index=False))
    return path


def test_kills_during_ask_and_tell_lose_nothing(machine: Machine) -> None:
    rng, seconds = random.Random(0), {"ask": 0.2, "tell": 0.2}
    undisturbed = Campaign.create(machine.folder / "undisturbed", length=8, noise=0.05, batch=BATCH)
    assert (
        machine("campaign", "create", "lab", "--alphabet", "dna", "--length", 8, "--noise", 0.05, "--batch", BATCH).code
        == 0
    )
    campaign = Campaign.open(machine.folder / "lab")
    plate = machine.folder / "plate.csv"
    while machine.kills["campaign"] < KILLS:
        for verb, table in (("ask", 0), ("tell", 1)):
            file = results_of(campaign, machine.folder, rng) if verb == "tell" else None
            arguments: list[object] = ["--out", plate] if file is None else [file]
            done = False
            while not done:
                before = facts(campaign)
                plate.unlink(missing_ok=True)
                after = rng.uniform(0.0, 1.3 * seconds[verb])
                kill_after = after if machine.kills["campaign"] < KILLS else None
                life = machine("campaign", verb, "lab", *arguments, kill_after=kill_after, kind="campaign")
                assert life.killed or life.code == 0, life.text
                now = facts(campaign)
                done = assert_kept(before[table], now[table], BATCH)
                assert not assert_kept(before[1 - table], now[1 - table], BATCH)
                assert done or life.killed
                if not life.killed:
                    seconds[verb] = life.seconds
            if file is None:  # the file is whole or absent, and can be had again
                asked = campaign.asked()
                assert not plate.exists() or plate.read_text() == asked.to_csv(index=False)
                pd.testing.assert_frame_equal(asked, undisturbed.ask())
            else:
                assert undisturbed.tell(file).num_new == BATCH
                assert machine("campaign", verb, "lab", file).text.startswith("Nothing new")
    designs = campaign.history().orders["design"]
    assert designs.is_unique
    pd.testing.assert_frame_equal(facts(campaign)[1], facts(undisturbed)[1])
    assert sorted(path.name for path in campaign.directory.iterdir()) == ["campaign.sqlite"]


def test_a_campaign_that_is_killed_while_it_is_made_can_be_made_again(machine: Machine) -> None:
    rng, command = random.Random(1), ["campaign", "create", "lab", "--alphabet", "dna", "--length", 8]
    for number in range(4):
        command[2] = f"lab{number}"
        life = machine(*command, kill_after=rng.uniform(0.0, 0.05), kind="campaign")
        if life.killed and machine(*command).code == 2:  # it had been made when the kill came
            assert machine("campaign", "status", command[2]).code == 0
        assert Campaign.open(machine.folder / command[2]).status().num_asks == 0
