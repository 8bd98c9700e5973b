"""Fixtures that several test modules share."""

import os
import secrets
import signal
from collections import Counter

import pytest
import torch
from hypothesis import settings
from torch import Tensor

from stochflow.core.errors import speak_as_command_line
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.tfbind8 import TFBind8
from tests.fuzz import counts

# messages are tested as they are written: with the options and commands of the command line
speak_as_command_line()
# small tensors: a second thread costs more than it brings, and the suite may run on two processes
torch.set_num_threads(1)
# the same examples on every machine and every day: a red test stays red until the code is mended
settings.register_profile("stochflow", derandomize=True, deadline=None, database=None, max_examples=30)
settings.load_profile("stochflow")
# runs that tests start would ignore it too, where the suite itself was started with `nohup`
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
# Ray reads these when it is imported first: a cluster that a test starts and the process that joins it must agree
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(counts)


@pytest.fixture
def generator() -> torch.Generator:
    """A fresh stream of random numbers, the same one for every test."""
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def tfbind8() -> TFBind8:
    """The SIX6 task, read once."""
    return TFBind8()


@pytest.fixture(scope="session")
def six6_log_reward(tfbind8: TFBind8) -> Tensor:
    """log R = log max(score³, 1e-6) of all 65,536 sequences: the target of the check values in the method."""
    return Reward(beta=3.0, floor=1e-6, ramp=0.0).log_reward(tfbind8.all_scores)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how often the tests of `tests/faults` killed something, and how often it went on exactly."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    failed = {report.nodeid for report in reports if getattr(report, "failed", False)}
    kills, exact, disks = Counter[str](), 0, set()
    for report in reports:
        if getattr(report, "when", None) != "teardown":  # which knows all that the test has noted
            continue
        for name, value in report.user_properties:
            if name == "kills":
                kills[value[0]] += value[1]
                exact += 0 if report.nodeid in failed else value[1]
            if name == "disks":
                disks.add(value)
    if kills:
        parts = ", ".join(f"{number} {kind}" for kind, number in sorted(kills.items()))
        terminalreporter.write_sep("=", f"faults: {kills.total()} kills, {exact} exact resumes")
        terminalreporter.write_line(f"kills: {parts}; full and read-only disks: {', '.join(sorted(disks)) or 'none'}")
