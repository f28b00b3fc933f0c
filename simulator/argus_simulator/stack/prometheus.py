"""Prometheus: its configuration, and questions to its API."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from argus_simulator.stack import pace
from argus_simulator.stack.errors import StackError

_TIMEOUT_S = 10.0

_ITERATIONS = re.compile(
    r"^prometheus_rule_group_iterations_(?:(missed)_)?total\{[^}]*\} (\S+)$", re.MULTILINE
)

Samples = list[tuple[dict[str, str], float]]
"""(labels, value) of an instant vector."""


@dataclass(frozen=True)
class Alert:
    """An alert as Prometheus sees it now."""

    name: str
    state: str
    """`pending` or `firing`."""
    labels: dict[str, str]
    annotations: dict[str, str]
    active_at: float
    """Unix time since which its expression holds."""


def configuration(rules: Sequence[Path], targets: Path, alertmanager: str) -> str:
    """prometheus.yml at the pace of the rules.

    Args:
        rules: rule files.
        targets: folder of files that name scrape targets, read again when they change.
        alertmanager: its host:port.
    """
    interval = pace.duration(pace.SCRAPE_S)
    return yaml.safe_dump(
        {
            "global": dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), interval),
            "rule_files": [str(path) for path in rules],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
            "scrape_configs": [
                {"job_name": job, "file_sd_configs": [{"files": [str(targets / f"{job}.json")]}]}
                for job in ("argus-exporter", "argus-l3-worker")
            ],
        },
        sort_keys=False,
    )


def write_target(targets: Path, job: str, *addresses: str) -> None:
    """Point a scrape job at each host:port. Prometheus watches the folder; a rename is seen as one change."""
    content = json.dumps([{"targets": addresses}])
    draft = targets / f"{job}.draft"
    draft.write_text(content)
    draft.rename(targets / f"{job}.json")


class PrometheusApi:
    """Questions to a running Prometheus."""

    def __init__(self, url: str) -> None:
        self._url = url

    def query(self, promql: str, at: str = "") -> Samples:
        """An instant query that gives a vector (or a scalar, as one sample without labels).

        Args:
            at: a time as the API has it; now without one.

        Raises:
            StackError: Prometheus refuses the query, or does not answer.
        """
        data = self._get("query", query=promql, **({"time": at} if at else {}))
        match data["resultType"]:
            case "vector":
                return [(sample["metric"], float(sample["value"][1])) for sample in data["result"]]
            case "scalar":
                return [({}, float(data["result"][1]))]
            case other:
                raise StackError(f"{promql} gives a {other}; ask for an instant vector")

    def alerts(self) -> list[Alert]:
        """Pending and firing alerts."""
        return [
            Alert(
                name=alert["labels"]["alertname"],
                state=alert["state"],
                labels=alert["labels"],
                annotations=alert["annotations"],
                active_at=datetime.fromisoformat(alert["activeAt"]).timestamp(),
            )
            for alert in self._get("alerts")["alerts"]
        ]

    def rule_errors(self) -> list[str]:
        """Rules whose last evaluation failed, with the reason."""
        return [
            f"{rule['name']}: {rule['lastError']}"
            for group in self._get("rules")["groups"]
            for rule in group["rules"]
            if rule.get("lastError")
        ]

    def missed_evaluations(self) -> float:
        """Share of the rule evaluations that were due and left out, since the start, over all groups."""
        counts = {"missed": 0.0, "": 0.0}
        try:
            with urllib.request.urlopen(f"{self._url}/metrics", timeout=_TIMEOUT_S) as answer:
                text = answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            raise StackError(f"Prometheus at {self._url} does not answer: {error}") from error
        for which, value in _ITERATIONS.findall(text):
            counts[which] += float(value)
        return counts["missed"] / counts[""] if counts[""] else 0.0  # the total has the missed ones too

    def _get(self, what: str, **parameters: str) -> Any:
        address = f"{self._url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            detail = error.read().decode(errors="replace")
            with contextlib.suppress(ValueError, KeyError):
                detail = json.loads(detail)["error"]
            raise StackError(f"Prometheus refuses {what} {parameters}: {detail}") from error
        except (OSError, http.client.HTTPException) as error:
            raise StackError(f"Prometheus at {self._url} does not answer: {error}") from error
