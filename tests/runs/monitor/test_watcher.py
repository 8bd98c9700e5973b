"""Warnings while a run goes on: each once, and not again in a later session."""

import warnings

from stochflow.runs.monitor.history import History, history_of
from stochflow.runs.monitor.watcher import Watcher
from tests.runs.monitor.conftest import NUM_STEPS, MakeRecords, config_of


def test_each_alarm_is_said_once_with_its_remedy(make_records: MakeRecords) -> None:
    watcher = Watcher(History(config_of(optimiser={"learning_rate": 1e-9})))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for record in make_records(regret=0.6):
            watcher(record, record["step"] / NUM_STEPS)
    assert [str(warning.message).split(":")[0] for warning in said] == ["stalled"]
    assert "raise optimiser.learning_rate (1e-09 now" in str(said[0].message)


def test_a_resumed_run_is_not_told_again_what_it_heard(make_records: MakeRecords) -> None:
    records = make_records(regret=0.6)
    watcher = Watcher(history_of(config_of(), records[:60]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for record in records[60:]:
            watcher(record, record["step"] / NUM_STEPS)
    assert watcher.history.num_steps == NUM_STEPS
