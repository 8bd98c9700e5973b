"""The file: one writer at a time, facts that stay, and what is refused."""

import sqlite3
from contextlib import closing

import pandas as pd
import pytest

from stochflow import Campaign, ConfigError, DataError, campaigns
from stochflow.campaigns import store

RESULTS = pd.DataFrame({"sequence": ["ACGT"], "score": [1.0]})


def test_a_locked_campaign_is_refused_and_may_be_read(make, monkeypatch):
    monkeypatch.setattr(store, "_LOCK_TIMEOUT", 0.0)
    campaign = make()
    with closing(sqlite3.connect(campaign.directory / store.FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for write in (campaign.ask, campaign.undo, lambda: campaign.tell(RESULTS)):
            with pytest.raises(DataError, match=r"another process is writing to .*; wait until it has ended"):
                write()
        assert Campaign.open(campaign.directory).status().num_asks == 0
    campaign.tell(RESULTS)


def test_facts_cannot_be_changed_or_removed(make):
    campaign = make()
    campaign.tell(RESULTS)
    campaign.ask(1)
    with closing(sqlite3.connect(campaign.directory / store.FILE)) as connection:
        for table in ("settings", "asks", "orders", "tells", "results"):
            with pytest.raises(sqlite3.IntegrityError, match="facts stay"):
                connection.execute(f"DELETE FROM {table}")
        with pytest.raises(sqlite3.IntegrityError, match="facts stay"):
            connection.execute("UPDATE results SET value = 2")


def damaged(path, statement):
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        (f"PRAGMA user_version = {store.FORMAT + 1}", f"has format {store.FORMAT + 1} .*; update stochflow"),
        ("PRAGMA application_id = 7", "a database of another program"),
        ("CREATE TABLE more (a)", "is damaged; restore it"),
        ("DROP TRIGGER no_delete_of_tells", "is damaged; restore it"),
    ],
)
def test_other_files_are_refused(make, statement, sentence):
    campaign = make()
    damaged(campaign.directory / store.FILE, statement)
    with pytest.raises(DataError, match=sentence):
        Campaign.open(campaign.directory)


def test_half_a_file_is_refused(make):
    campaign = make()
    path = campaign.directory / store.FILE
    content = path.read_bytes()
    for half in (content[: len(content) // 2], b"no database" * 100):
        path.write_bytes(half)
        with pytest.raises(DataError, match=r"is damaged or was not copied whole .*; copy it again, or restore it"):
            Campaign.open(campaign.directory)


def test_an_empty_file_is_what_is_left_of_a_creation_and_may_be_made_again(tmp_path):
    (tmp_path / store.FILE).touch()
    with pytest.raises(DataError, match="is empty; make the campaign again"):
        Campaign.open(tmp_path)
    Campaign.create(tmp_path, length=4)
    with pytest.raises(ConfigError, match="holds a campaign already"):
        Campaign.create(tmp_path, length=4)


def test_a_directory_without_a_campaign_is_refused(tmp_path):
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(DataError, match="holds no campaign; give"):
            Campaign.open(place)


def test_a_campaign_cannot_be_made_in_a_file(tmp_path):
    (tmp_path / "lab").touch()
    with pytest.raises(ConfigError, match="cannot be made"):
        Campaign.create(tmp_path / "lab", length=4)


def test_damaged_settings_are_refused():
    from stochflow.campaigns.settings import stored_settings

    with pytest.raises(DataError, match="settings of the campaign are damaged"):
        stored_settings('{"length": "long"}')


@pytest.mark.parametrize("verb", ["ask", "tell"])
def test_what_is_interrupted_between_two_tables_never_happened(make, monkeypatch, verb):
    campaign = make()

    def insert(connection, table, rows):
        if table in ("orders", "results"):
            raise KeyboardInterrupt
        store.insert(connection, table, rows)

    for module in (campaigns.campaign, campaigns.telling):
        monkeypatch.setattr(module, "insert", insert)
    with pytest.raises(KeyboardInterrupt):
        campaign.ask() if verb == "ask" else campaign.tell(RESULTS)
    status = campaign.status()
    assert (status.num_asks, status.num_tells) == (0, 0)
