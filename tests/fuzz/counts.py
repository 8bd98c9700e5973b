"""Says at the end of a test run how many hostile inputs there were."""

import pytest
from _pytest.terminal import TerminalReporter


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """One line per kind; the numbers come with the reports, from whatever process ran the tests."""
    counts = [
        value
        for reports in terminalreporter.stats.values()
        for found in reports
        if isinstance(found, pytest.TestReport) and found.when == "call"
        for name, value in found.user_properties
        if name == "fuzzed"
    ]
    if not counts:
        return
    terminalreporter.section("fuzzed inputs")
    for count in sorted(counts, key=lambda count: str(count["kind"])):
        terminalreporter.line("{kind}: {inputs} inputs, {refused} refused with a sentence, {bad} bad".format(**count))
    total, bad = (sum(count[name] for count in counts) for name in ("inputs", "bad"))
    terminalreporter.line(f"all: {total} inputs, {bad} bad")
