"""A real stack for each file of end-to-end tests: exporter, Prometheus, Alertmanager, L3 worker, webhook."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from argus_simulator.stack import Stack

CULPRIT_ALERTS = frozenset(
    (
        "ArgusStragglerRank",
        "ArgusHostStall",
        "ArgusGroupImbalance",
        "ArgusCollectiveLateRank",
        "ArgusCollectiveSlowLink",
        "ArgusKernelDegraded",
    )
)
"""Alerts that accuse somebody."""


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with Stack() as running:
        yield running
        assert running.rule_errors() == []


def accusations(stack: Stack, job: str) -> set[tuple[str, str, str]]:
    """(alert, rank or empty, cause) of every accusation of the job that Prometheus ever fired."""
    query = f'max_over_time(ALERTS{{training_job="{job}",alertstate="firing"}}[1h])'
    return {
        (labels["alertname"], labels.get("rank", ""), labels.get("cause", ""))
        for labels, _ in stack.query(query)
        if labels["alertname"] in CULPRIT_ALERTS
    }


def delivered(stack: Stack, job: str, alert: str) -> set[tuple[str, str]]:
    """(route, rank) of what Alertmanager delivered of an alert of the job."""
    return {
        (notification.path, notification.labels.get("rank", ""))
        for notification in stack.notifications()
        if notification.alert == alert and notification.labels.get("training_job") == job
    }
