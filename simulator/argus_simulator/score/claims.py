"""What was said about a job: alerts as Alertmanager delivered them, with the ranks that each one accuses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from argus_simulator.stack import Notification

SEVERITIES = ("info", "ticket", "page")
"""From quiet to loud."""

ABOUT_ARGUS = frozenset(
    {
        "ArgusChannelDown",
        "ArgusRecordsDropped",
        "ArgusOverheadBudget",
        "ArgusL3WorkerBehind",
        "ArgusRulesBehind",
    }
)
"""Alerts on the state of ARGUS itself: they find no fault of a training job."""

Members = Callable[[Mapping[str, str]], frozenset[int]]
"""Ranks that the labels of an alert without `rank` accuse as a group; empty: nobody."""


@dataclass(frozen=True)
class Claim:
    """One alert from its beginning to its end.

    Attributes:
        ranks: whom it accuses; empty: nobody, it is about the whole job.
        group: it accuses them together, not one by one.
        start, end: Unix times; the end is infinite while it fires.
    """

    alert: str
    severity: str
    team: str
    cause: str
    ranks: frozenset[int]
    group: bool
    start: float
    end: float
    labels: Mapping[str, str]

    @property
    def suspects(self) -> bool:
        """Whether it says that the culprit is one of them, and not which."""
        return self.group and bool(self.labels.get("set"))

    @property
    def about_training(self) -> bool:
        return self.alert not in ABOUT_ARGUS

    @property
    def above_info(self) -> bool:
        return SEVERITIES.index(self.severity) > 0

    def at_most(self, severity: str) -> bool:
        return SEVERITIES.index(self.severity) <= SEVERITIES.index(severity)


def sentences(claims: Iterable[Claim]) -> tuple[str, ...]:
    """Claims in words, in the order in which they began; those that differ in rank or loudness are one."""
    alike: dict[tuple[str, str, bool], list[Claim]] = {}
    for claim in claims:
        alike.setdefault((claim.alert, claim.cause, claim.group), []).append(claim)
    return tuple(_sentence(*key, same) for key, same in alike.items())


def _sentence(alert: str, cause: str, group: bool, claims: Sequence[Claim]) -> str:
    severities = sorted({claim.severity for claim in claims}, key=SEVERITIES.index)
    ranks = sorted(frozenset[int]().union(*(claim.ranks for claim in claims)))
    phases = sorted({claim.labels.get("phase", "") for claim in claims} - {""})
    whom = f" {'group of ' if group else 'rank '}{','.join(map(str, ranks))}" if ranks else ""
    what = " ".join((cause, *phases)).strip()
    return f"{'/'.join(severities)} {alert}{whom}" + (f" ({what})" if what else "")


def claims_of(job: str, delivered: Iterable[Notification], members: Members) -> list[Claim]:
    """All claims on a job, in the order in which they began.

    Alertmanager repeats what it said whenever something joins the group: one alert with one beginning is one
    claim. It ends with the delivery that says so.
    """
    begun: dict[tuple[tuple[str, str], ...], dict[float, float]] = {}
    for notification in delivered:
        labels = notification.labels
        if labels.get("training_job") != job:
            continue
        periods = begun.setdefault(tuple(sorted(labels.items())), {})
        if notification.status == "firing":
            periods.setdefault(notification.starts_at, float("inf"))
        elif notification.starts_at in periods:
            periods[notification.starts_at] = min(
                periods[notification.starts_at], notification.ends_at or notification.received
            )
    claims = [
        _claim(dict(labels), start, end, members)
        for labels, periods in begun.items()
        for start, end in periods.items()
    ]
    return sorted(claims, key=lambda claim: (claim.start, sorted(claim.labels.items())))


def _claim(labels: dict[str, str], start: float, end: float, members: Members) -> Claim:
    rank = labels.get("rank", "")
    ranks = frozenset({int(rank)}) if rank.isdecimal() else members(labels)
    return Claim(
        labels.get("alertname", ""),
        labels.get("severity", SEVERITIES[0]),
        labels.get("team", ""),
        labels.get("cause", ""),
        ranks,
        bool(ranks) and not rank,
        start,
        end,
        labels,
    )


def incidents(claims: Iterable[Claim], apart_s: float) -> list[list[Claim]]:
    """Claims that an on-call engineer sees as one thing: they overlap, or follow within `apart_s`."""
    grouped: list[list[Claim]] = []
    until = float("-inf")
    for claim in sorted(claims, key=lambda claim: claim.start):
        if not grouped or claim.start > until + apart_s:
            grouped.append([])
        grouped[-1].append(claim)
        until = max(until, claim.end)
    return grouped
