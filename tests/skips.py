"""Which tests CI may skip. Any other that skips there fails the run: a missing tool hides what it tests.

Elsewhere (no `CI` in the environment) a skip is only reported, since not everybody has everything.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import Final

import pytest

ALLOWED: Final = {
    "no NVIDIA GPU": "no CI machine has one",
    "OpenStack Swift is absent": "a second S3 server, of a distribution's packages; moto is there always",
    "promtool is older than 3.5": "Debian 12's is 2.42; `make verify` plays it with a newer one",
    "prometheus is older than 2.54": "as above: what counts what it writes",
    "Debian 11's packages cannot be had here": "a mirror may have dropped that release",
    "no package index is reached from here": "`make dist` fetches what builds it; set-up is over by then",
    "no PID namespace can be made here": "a container of CI may lack the privilege; any host has it",
    "it shows all jobs": "a parameter to which the test does not apply",
}
"""Beginning of a reason, and why CI may skip for it."""


class SkipCount:
    """Counts the reasons of skipped tests, in the process that reports."""

    def __init__(self) -> None:
        self._reasons: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._take(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._take(report)

    def _take(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
            self._reasons[re.sub("^Skipped: ", "", report.longrepr[2])] += 1

    def unexpected(self) -> list[str]:
        """Reasons that are not on the list, with how often each was given."""
        return [
            f"{count} skipped: {reason}"
            for reason, count in sorted(self._reasons.items())
            if not reason.startswith(tuple(ALLOWED))
        ]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if os.environ.get("CI") and self.unexpected() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if os.environ.get("CI") and self.unexpected():
            terminalreporter.section("skipped, and not in tests/skips.py")
            for line in self.unexpected():
                terminalreporter.line(line)
