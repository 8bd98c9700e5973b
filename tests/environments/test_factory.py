"""From settings to an environment."""

from pathlib import Path
from typing import Any

import pytest

from stochflow.config.environment import TableConfig
from stochflow.config.schema import Config
from stochflow.core.errors import ConfigError, DataError
from stochflow.environments.factory import TABLE_COPY, configure, same_setting
from stochflow.environments.graphs.environment import GraphEnvironment
from stochflow.environments.sequences.constraints import ConstrainedTask
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.environments.sequences.oracles.task import OracleTask
from stochflow.environments.sequences.variable_length import VariableTask
from stochflow.environments.settings import resolve_layers

TABLE_TEXT = "seq,one,two\naa,0.1,1.0\nab,0.5,0.5\nbb,0.5,0.5\n"


def settings(**given: Any) -> Config:
    return resolve_layers([given])


@pytest.fixture
def table(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "own.csv"
    path.write_text(TABLE_TEXT, encoding="utf-8")
    return {"file": str(path), "sequence_column": "seq", "score_column": "one,two", "alphabet": "ab", "gap_score": 0.0}


def test_a_name_stands_for_sequences_or_for_a_graph() -> None:
    sequences = configure(settings(task="tfbind8", channel={"noise": 0.1})).environment
    assert isinstance(sequences, SequenceEnvironment)
    assert sequences.describe() == {"task": "tfbind8", "noise": 0.1}
    graph = configure(settings(task="hypergrid:2,4", channel={"noise": 0.1})).environment
    assert isinstance(graph, GraphEnvironment)
    assert graph.describe() == {"task": "hypergrid:2,4", "noise": 0.1}


def test_without_a_table_the_settings_are_kept_as_they_are() -> None:
    config = settings(task="tfbind8")
    configured = configure(config)
    assert configured.config == configured.stored == config
    assert configured.table is None


def test_a_table_is_pinned_by_its_path_name_letters_and_hash(
    table: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(table["file"]).parent)
    configured = configure(settings(task="table", table=table | {"file": "own.csv"}))
    pinned = configured.config.table
    assert configured.table is not None
    assert (pinned.file, pinned.name, pinned.alphabet) == (table["file"], "own", "ab")
    assert pinned.sha256 == configured.table.sha256
    again = configure(configured.config)
    assert again.config == configured.config


def test_what_a_run_stores_reads_its_own_copy(table: dict[str, Any], tmp_path: Path) -> None:
    configured = configure(settings(task="table", table=table))
    assert configured.table is not None
    stored = configured.stored.table
    assert (stored.file, stored.sequence_column, stored.score_column) == (TABLE_COPY, "sequence", "score_1,score_2")
    copy = tmp_path / TABLE_COPY
    copy.write_text(configured.table.text, encoding="utf-8")
    again = configure(
        configured.stored.model_copy(update={"table": stored.model_copy(update={"file": str(copy)})})
    ).environment
    assert isinstance(again, SequenceEnvironment)
    assert isinstance(configured.environment, SequenceEnvironment)
    assert again.task.all_scores.tolist() == configured.environment.task.all_scores.tolist()


def test_a_table_that_changed_is_refused(table: dict[str, Any]) -> None:
    config = configure(settings(task="table", table=table)).config
    Path(table["file"]).write_text(TABLE_TEXT.replace("0.1", "0.2"), encoding="utf-8")
    with pytest.raises(DataError, match="has changed since training began"):
        configure(config)


def test_bounds_of_length_are_those_of_the_table_unless_they_are_given(table: dict[str, Any]) -> None:
    Path(table["file"]).write_text("seq,one,two\na,0.1,1.0\nabb,0.5,0.5\n", encoding="utf-8")
    found = configure(settings(task="table", table=table, lengths={"variable": True}))
    assert isinstance(found.environment, SequenceEnvironment)
    assert isinstance(found.environment.task, VariableTask)
    assert (found.config.lengths.min_length, found.config.lengths.max_length) == (1, 3)
    assert found.environment.rules is found.environment.task.rules
    assert found.environment.padding is not None
    wider = configure(settings(task="table", table=table, lengths={"variable": True, "max_length": 5}))
    assert (wider.config.lengths.min_length, wider.config.lengths.max_length) == (1, 5)


def test_constraints_come_after_noise_in_the_reward() -> None:
    config = settings(task="tfbind8", constraints={"forbid": ["AA"]}, reward_noise="gaussian:0.1")
    environment = configure(config).environment
    assert isinstance(environment, SequenceEnvironment)
    assert isinstance(environment.task, ConstrainedTask)
    assert environment.noisy


def test_an_oracle_that_only_settings_name_is_not_imported() -> None:
    config = settings(task="oracle:nowhere.at_all:score", oracle={"length": 4, "alphabet": "dna"})
    environment = configure(config).environment
    assert isinstance(environment, SequenceEnvironment)
    assert isinstance(environment.task, OracleTask)
    with pytest.raises(ConfigError):
        environment.check()


@pytest.mark.parametrize("task", ["tfbind8", "hypergrid:2,4"])
def test_other_noise_changes_the_dynamics_alone(task: str) -> None:
    config = settings(task=task, channel={"noise": 0.1})
    before = configure(config).environment
    after = before.under(settings(task=task, channel={"noise": 0.5}))
    assert type(after) is type(before)
    assert (before.noise, after.noise) == (0.1, 0.5)
    assert float((after.dynamics - before.dynamics).abs().max()) > 0.1
    if isinstance(before, SequenceEnvironment):
        assert isinstance(after, SequenceEnvironment)
        assert after.task is before.task  # with all that it has scored


def test_where_a_table_lies_does_not_matter_but_what_it_says_does() -> None:
    one = Config(task="table", table=TableConfig(file="here.csv", name="own", sha256="a"))
    moved = Config(task="table", table=TableConfig(file="there.csv", name="own", sha256="a", sequence_column="x"))
    other = Config(task="table", table=TableConfig(file="here.csv", name="own", sha256="b"))
    assert same_setting("table", one, moved)
    assert not same_setting("table", one, other)
    assert not same_setting("seed", one, one.model_copy(update={"seed": 5}))
