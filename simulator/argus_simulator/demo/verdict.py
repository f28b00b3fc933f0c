"""Who was accused: from what Alertmanager delivered to the accusations in it, compared with the truth."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from argus_simulator.demo.truth import Accusation, Truth
from argus_simulator.stack import Notification

ACCUSING = frozenset(
    {
        "ArgusStragglerRank",
        "ArgusHostStall",
        "ArgusGroupImbalance",
        "ArgusCollectiveLateRank",
        "ArgusCollectiveSlowLink",
        "ArgusKernelDegraded",
        "ArgusKernelGroupShift",
    }
)
"""Alerts that blame a rank or a group; the others tell the state of the job or of ARGUS itself."""


@dataclass(frozen=True)
class Verdict:
    """What was found."""

    expected: Accusation
    found: tuple[Accusation, ...]
    other: tuple[str, ...]
    """Alerts that accuse nobody."""

    @property
    def ok(self) -> bool:
        return self.found == (self.expected,)


def accusation(notification: Notification) -> Accusation:
    labels = notification.labels
    return Accusation(
        notification.alert, labels.get("rank", ""), labels.get("cause", ""), labels.get("team", "")
    )


def judge(truth: Truth, delivered: Iterable[Notification]) -> Verdict:
    """Sort deliveries of any severity; one accusation for each alert, rank and cause."""
    found: dict[tuple[str, str, str], Accusation] = {}
    other: set[str] = set()
    for notification in delivered:
        if notification.status != "firing":
            continue
        made = accusation(notification)
        if made.alert not in ACCUSING:
            other.add(made.alert)
        else:
            found.setdefault((made.alert, made.rank, made.cause), made)
    ordered = tuple(sorted(found.values(), key=lambda made: (made.alert, made.rank, made.cause)))
    return Verdict(truth.expected, ordered, tuple(sorted(other)))
