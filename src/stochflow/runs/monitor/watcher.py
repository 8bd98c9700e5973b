"""Listens to a run and says aloud what is wrong with it, each thing once."""

import warnings
from collections.abc import Mapping
from typing import Any

from stochflow.runs.monitor.alarms import alarms
from stochflow.runs.monitor.history import Course


class Watcher:
    """Hears every record of a run; what it costs is that of a few additions per step.

    Attributes:
        course: of the run so far.
    """

    def __init__(self, course: Course) -> None:
        self.course = course
        # what an earlier session saw is not said again
        self._said = {finding.kind for finding in alarms(course)}

    def __call__(self, record: Mapping[str, Any], share: float) -> None:
        """Take a record in, and warn where that is due.

        Args:
            share: of the budget that is spent.
        """
        if not self.course.add(record, share):
            return
        for finding in alarms(self.course):
            if finding.kind not in self._said:
                self._said.add(finding.kind)
                warnings.warn(str(finding), stacklevel=2)
