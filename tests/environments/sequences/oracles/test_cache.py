"""The cache on disk: scores are durable, shared between runs, and verified."""

import sqlite3
from pathlib import Path

import pytest

from stochflow.core.errors import DataError
from stochflow.environments.sequences.oracles.cache import ScoreCache


def test_scores_survive_and_the_first_one_stays(tmp_path: Path) -> None:
    cache = ScoreCache(tmp_path / "c.sqlite", "f", "me")
    assert cache.get(["A"]) == {}
    assert not cache.path.exists()  # looking makes nothing
    cache.put({"A": 0.1 + 0.2, "B": 0.0})
    cache.put({"A": 9.0})
    again = ScoreCache(cache.path, "f", "me")
    assert again.get(["B", "A", "A", "C"]) == {"A": 0.1 + 0.2, "B": 0.0}
    cache.close()
    again.close()


def test_oracles_do_not_mix_and_payers_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    mine, other, theirs = ScoreCache(path, "f", "me"), ScoreCache(path, "g", "me"), ScoreCache(path, "f", "them")
    mine.put({"A": 1.0})
    other.put({"A": 2.0})
    theirs.put({"B": 3.0, "A": 4.0})
    assert mine.get(["A", "B"]) == {"A": 1.0, "B": 3.0}
    assert other.get(["A", "B"]) == {"A": 2.0}
    assert mine.paid_by_others(["A", "B"]) == {"B"}
    assert theirs.paid_by_others(["A", "B"]) == {"A"}
    for cache in (mine, other, theirs):
        cache.close()


def test_more_designs_than_one_question_can_hold(tmp_path: Path) -> None:
    cache = ScoreCache(tmp_path / "c.sqlite", "f", "me")
    scores = {f"{number:05d}": float(number) for number in range(3000)}
    cache.put(scores)
    assert cache.get([*scores, "x"]) == scores
    cache.close()


def test_a_score_is_on_disk_when_put_returns(tmp_path: Path) -> None:
    cache = ScoreCache(tmp_path / "c.sqlite", "f", "me")
    cache.put({"A": 1.5})
    with sqlite3.connect(cache.path) as reader:  # another connection sees only what was committed
        assert reader.execute("SELECT design, score FROM scores").fetchall() == [("A", 1.5)]
        assert reader.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    reader.close()
    cache.close()


@pytest.mark.parametrize("kind", ["folder", "text", "foreign", "nowhere"])
def test_a_file_that_is_no_cache_is_refused_and_left_alone(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    if kind == "folder":
        path.mkdir()
    elif kind == "text":
        path.write_text("these are my notes, not a database " * 50)
    elif kind == "foreign":
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE mine (x)")
        connection.close()
    else:
        path = tmp_path / "missing" / "c.sqlite"
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(DataError, match=r"cannot be used .*give another file with --oracle-cache"):
        ScoreCache(path, "f", "me").check()
    assert (path.read_bytes() if path.is_file() else None) == before


@pytest.mark.parametrize(
    "forged",
    [
        "UPDATE scores SET score = 0.75",
        "UPDATE scores SET score = 'text'",
        "PRAGMA user_version = 0; UPDATE scores SET score = 'text'",  # as in the first files, without checksums
        "PRAGMA user_version = 0; UPDATE scores SET score = 9e999",  # as in the first files, without checksums
        "PRAGMA user_version = 0; UPDATE scores SET score = -1",  # as in the first files, without checksums
        "CREATE TRIGGER t AFTER INSERT ON scores BEGIN DELETE FROM scores; END",
        "DROP TABLE scores; CREATE VIEW scores AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
        "SELECT 'f' AS oracle, 'x' AS design, i AS score, 'p' AS payer FROM n",
    ],
)
def test_a_forged_file_is_refused(tmp_path: Path, forged: str) -> None:
    path = tmp_path / "scores.sqlite"
    cache = ScoreCache(path, "f", "me")
    cache.put({"AC": 0.5})
    cache.close()
    connection = sqlite3.connect(path)
    connection.executescript(forged)
    connection.close()
    with pytest.raises(DataError, match=r"something else than scores|score that is no number|its checksum"):
        ScoreCache(path, "f", "me").get(["AC"])
