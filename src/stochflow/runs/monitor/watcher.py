"""Warnings during training: every alarm is raised once."""

import warnings
from collections.abc import Mapping
from typing import Any

from stochflow.runs.monitor.alarms import alarms
from stochflow.runs.monitor.history import History


class Watcher:
    """Callback that receives every record of a run and warns when a new alarm holds.

    Attributes:
        history: statistics of the run so far.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        # alarms of an earlier session are not repeated after a resume
        self._said = {finding.kind for finding in alarms(history)}

    def __call__(self, record: Mapping[str, Any], share: float) -> None:
        """Add the record of a step, and warn of alarms that are new.

        Args:
            share: share of the budget that is spent.
        """
        if not self.history.add(record, share):
            return
        for finding in alarms(self.history):
            if finding.kind not in self._said:
                self._said.add(finding.kind)
                warnings.warn(str(finding), stacklevel=2)
