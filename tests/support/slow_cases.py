"""Lists the cases that took more than a second and have no `slow` marker with a reason.

It only lists them: on a busy machine every case takes longer, and a suite must not fail for that.
"""

import pytest

LIMIT = 1.0
"""Seconds that a case may take without a reason, its fixtures not counted."""
_LISTED = 40


class SlowCases:
    """A plugin of pytest. Where tests run in several processes, the one that reports gets all durations."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.duration > LIMIT and "slow" not in report.keywords:
            self._seconds[report.nodeid] = report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._seconds:
            return
        slowest = sorted(self._seconds.items(), key=lambda case: case[1], reverse=True)
        terminalreporter.section(f'{len(slowest)} cases over {LIMIT:g} s without @pytest.mark.slow("why")')
        for case, seconds in slowest[:_LISTED]:
            terminalreporter.line(f"{seconds:5.1f} s  {case}")
        if len(slowest) > _LISTED:
            terminalreporter.line(f"and {len(slowest) - _LISTED} more")
