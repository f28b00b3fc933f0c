"""What happens in a demo: healthy, fault, page delivered, and what comes after."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from argus_simulator.demo.progress import Reporter
from argus_simulator.demo.training import Training
from argus_simulator.demo.truth import Accusation, Truth
from argus_simulator.demo.verdict import ACCUSING, Verdict, accusation, judge
from argus_simulator.stack import Notification, Stack, WaitTimeout

_ONSET_S = 90.0
"""Bound on the healthy part; the simulated one lasts 20 s."""
_PAGE_S = 45.0
"""How long the page may take. Measured: 21 to 28 s after the fault."""
_AFTERMATH_S = 12.0
"""Watched after the page: false accusations come later, and what the worker says of kernels (in 6 s)."""
_COOL_DOWN_S = 5.0
"""Watched at least, also once the worker has spoken."""


@dataclass(frozen=True)
class Outcome:
    """What the demo showed."""

    verdict: Verdict
    early: tuple[Accusation, ...]
    """Accusations made while the job was healthy."""
    info: Notification | None
    page: Notification | None

    @property
    def ok(self) -> bool:
        return self.verdict.ok and not self.early and self.page is not None

    def as_json(self) -> str:
        """The last line: what was found against what was expected."""
        return json.dumps(
            {
                "found": [asdict(made) for made in self.verdict.found],
                "expected": asdict(self.verdict.expected),
                "ok": self.ok,
            }
        )


def slow_kernels(stack: Stack, truth: Truth) -> dict[str, float]:
    """By how much kernels of the true rank are slower than their peers', by name, as the worker found."""
    found = stack.query(f'argus_l3_anomaly{{rank="{truth.rank}",verdict="culprit"}}')
    return {labels["kernel"]: value for labels, value in found}


class Story:
    """Follows a training that was started.

    Methods raise StackError where a part of the stack or the training fails: then there is nothing to judge.
    """

    def __init__(self, stack: Stack, training: Training, reporter: Reporter) -> None:
        self._stack = stack
        self._training = training
        self._reporter = reporter

    def watch(self) -> Outcome:
        early = self._healthy_part()
        page = self._await_page()
        if page is not None:
            self._aftermath()
        delivered = self._stack.notifications()
        return Outcome(judge(self._training.truth, delivered), early, self._first("info"), page)

    def _healthy_part(self) -> tuple[Accusation, ...]:
        training = self._training

        def onset() -> float | None:
            self._progress("all ranks are healthy")
            return training.onset()

        self._stack.wait_for(onset, _ONSET_S, "the fault to begin")
        # Alertmanager may have been told and not delivered yet: Prometheus knows first.
        firing = {
            Accusation(alert.name, *(alert.labels.get(name, "") for name in ("rank", "cause", "team")))
            for alert in self._stack.alerts()
            if alert.name in ACCUSING and alert.state == "firing"
        }
        delivered = {
            accusation(notification)
            for notification in self._stack.notifications()
            if notification.alert in ACCUSING
        }
        early = tuple(sorted(delivered | firing, key=str))
        state = "yet somebody is accused" if early else "and nobody is accused"
        self._reporter.step(
            f"step {training.steps()}: all ranks were healthy, {state}; one rank slows down now"
        )
        return early

    def _await_page(self) -> Notification | None:
        def delivered() -> Notification | None:
            self._progress("one rank is slow; waiting for the page")
            return self._first("page", f"/{self._training.truth.expected.team}/page")

        try:
            page = self._stack.wait_for(delivered, _PAGE_S, "the page")
        except WaitTimeout:
            self._reporter.step(f"no page within {_PAGE_S:g} s")
            return None
        assert page is not None
        self._reporter.step(f"page delivered to {page.path}: {page.annotations.get('summary', page.alert)}")
        return page

    def _aftermath(self) -> None:
        reporter, truth = self._reporter, self._training.truth
        start = reporter.seconds

        def complete() -> bool:
            self._progress("watching for false accusations, and for what the kernels say")
            watched = reporter.seconds - start
            return watched >= _AFTERMATH_S or (
                watched >= _COOL_DOWN_S and bool(slow_kernels(self._stack, truth))
            )

        self._stack.wait_for(complete, _AFTERMATH_S * 2, "the end of the aftermath")

    def _first(self, severity: str, path: str | None = None) -> Notification | None:
        """The first delivery of the true accusation with this severity since the fault began."""
        onset = self._training.onset() or 0.0
        for notification in self._stack.notifications():
            if (
                notification.status == "firing"
                and notification.labels.get("severity") == severity
                and path in (None, notification.path)
                and notification.received >= onset
                and accusation(notification) == self._training.truth.expected
            ):
                return notification
        return None

    def _progress(self, doing: str) -> None:
        self._training.check()
        self._reporter.now(f"{self._training.steps()} steps; {doing}")
