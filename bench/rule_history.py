"""Rules evaluated over a past that was just written: an hour of records and alerts in a minute or two.

Prometheus evaluates rules on the wall clock only, and `promtool tsdb create-blocks-from rules` knows neither
rules that read other rules nor alerts. So each expression is asked of the real Prometheus at each time of the
history, in the order of the files, and its result is written back with that time, as Prometheus would do: a
series that is gone gets a stale marker, an alert is pending until its `for` has passed.
"""

from __future__ import annotations

import json
import math
import struct
import time
import urllib.parse
import urllib.request
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from argus_core import remote_write
from argus_core.remote_write import Labels
from bench.servers import PrometheusServer

_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}
_BATCH: Final = 20_000
"""Samples a request."""
_MARK: Final = b"\xff" * 8
_STALE_BITS: Final = struct.pack("<Q", remote_write.STALE_BITS)


@dataclass
class _Rule:
    """A recording rule, or an alert with what it is waiting for."""

    expr: str
    labels: dict[str, str]
    record: str = ""
    alert: str = ""
    wait: float = 0.0
    keep: float = 0.0
    present: dict[Labels, float] = field(default_factory=dict)
    active_since: dict[Labels, float] = field(default_factory=dict)
    seen: dict[Labels, float] = field(default_factory=dict)

    def series(self, found: list[tuple[dict[str, str], float]], at: float) -> dict[Labels, float]:
        """What Prometheus would store for a result."""
        if self.record:
            return {_labels(self.record, labels | self.labels): value for labels, value in found}
        stored: dict[Labels, float] = {}
        for labels, _ in found:
            key = _labels("ALERTS", labels | self.labels | {"alertname": self.alert})
            self.seen[key] = at
            self.active_since.setdefault(key, at)
        for key, since in list(self.active_since.items()):
            if at - self.seen[key] > self.keep:
                del self.active_since[key], self.seen[key]
                continue
            state = "firing" if at - since >= self.wait else "pending"
            stored[_labels("ALERTS", dict(key) | {"alertstate": state})] = 1.0
            stored[_labels("ALERTS_FOR_STATE", dict(key))] = since
        return stored


def _labels(name: str, labels: dict[str, str]) -> Labels:
    """Sorted, without empty values; `labels` may hold one called `name`, which `labels_of` cannot take."""
    return tuple(sorted((key, value) for key, value in (labels | {"__name__": name}).items() if value))


@dataclass
class _Group:
    """Rules that are evaluated together, when that was last, and how long it took."""

    name: str
    interval: float
    rules: list[_Rule]
    evaluated: float = -math.inf
    seconds: float = 0.0

    @property
    def short_name(self) -> str:
        """Without the file, which Prometheus puts before it."""
        return self.name.rpartition(";")[2]

    @property
    def file(self) -> str:
        """What the file is about."""
        return Path(self.name.rpartition(";")[0]).name.split(".")[1]


class RuleHistory:
    """The rules of some files, played over time on one Prometheus.

    Args:
        server: where the series are, and where results go.
        files: rule files, evaluated in the order of `_ORDER`.
    """

    def __init__(self, server: PrometheusServer, files: Sequence[Path]) -> None:
        self._server = server
        self._groups: list[_Group] = []
        self._encoded: dict[Labels, bytes] = {}
        for file in sorted(files, key=_depth):
            for group in yaml.safe_load(file.read_text())["groups"]:
                interval = _seconds(group.get("interval", "1m"))
                name = f"{file};{group['name']}"
                self._groups.append(_Group(name, interval, [_rule(rule) for rule in group["rules"]]))

    def evaluate(self, at: float, only: Collection[str] = ()) -> int:
        """Groups whose interval has passed; how many series came of it. Times must ascend.

        Args:
            only: names of groups; none: all of them.
        """
        count = 0
        for group in self._groups:
            if at - group.evaluated < group.interval - 1 or (only and group.short_name not in only):
                continue
            group.evaluated, begun = at, time.perf_counter()
            count += sum(self._apply(rule, at) for rule in group.rules)
            group.seconds = time.perf_counter() - begun
        if not only:
            self._write(self._of_evaluator(at))
        return count

    def names_in(self, *files: str) -> tuple[str, ...]:
        """Names of the groups in these files, such as `regression`."""
        return tuple(group.short_name for group in self._groups if group.file in files)

    def repeat(self, times: Sequence[float], until: float, but: Collection[str] = ()) -> None:
        """What was recorded last, again at each interval of its group: as if nothing had changed until then.

        Args:
            times: at which Prometheus says of its evaluations.
            until: when the rules are evaluated next.
            but: names of groups that are not repeated.
        """
        for group in self._groups:
            if group.evaluated == -math.inf or group.short_name in but:
                continue
            number = math.ceil((until - group.evaluated) / group.interval) - 1
            moments = [group.evaluated + group.interval * (step + 1) for step in range(number)]
            around = samples_around(moments)
            for rule in group.rules if moments else ():
                body = [
                    self._prefix(labels) + struct.pack("<d", value).join(around)
                    for labels, value in rule.present.items()
                ]
                for batch in remote_write.batches(body, max(1, _BATCH // len(moments))):
                    self._server.write(batch)
        for at in times:
            self._write(self._of_evaluator(at))

    def _of_evaluator(self, at: float) -> list[bytes]:
        """What a Prometheus would say of its own evaluations, with the times measured here."""
        said = []
        for group in self._groups:
            for name, value in (
                ("prometheus_rule_group_last_duration_seconds", group.seconds),
                ("prometheus_rule_group_interval_seconds", group.interval),
                ("prometheus_rule_group_iterations_missed_total", 0.0),
                ("prometheus_rule_group_rules", float(len(group.rules))),
            ):
                labels = remote_write.labels_of(name, rule_group=group.name, job="prometheus")
                said.append(self._encode(labels, struct.pack("<d", value), round(at * 1000)))
        return said

    def _apply(self, rule: _Rule, at: float) -> int:
        now = rule.series(_ask(self._server, rule.expr, at), at)
        stamp = round(at * 1000)
        body = [self._encode(labels, struct.pack("<d", value), stamp) for labels, value in now.items()]
        body += [self._encode(labels, _STALE_BITS, stamp) for labels in rule.present.keys() - now.keys()]
        rule.present = now
        self._write(body)
        return len(now)

    def _write(self, body: Sequence[bytes]) -> None:
        for batch in remote_write.batches(body, _BATCH):
            self._server.write(batch)

    def _encode(self, labels: Labels, value: bytes, stamp: int) -> bytes:
        return self._prefix(labels) + remote_write.encode_series_bits((), value, stamp)

    def _prefix(self, labels: Labels) -> bytes:
        prefix = self._encoded.get(labels)
        if prefix is None:
            empty = remote_write.encode_series((), 0.0, 0)
            prefix = self._encoded[labels] = remote_write.encode_series(labels, 0.0, 0)[: -len(empty)]
        return prefix


def samples_around(times: Sequence[float]) -> list[bytes]:
    """Encoded samples at these times but for their value: join them by its eight bytes."""
    parts = [b""]
    for at in times:
        before, after = remote_write.encode_series_bits((), _MARK, round(at * 1000)).split(_MARK)
        parts[-1] += before
        parts.append(after)
    return parts


def _ask(server: PrometheusServer, expr: str, at: float) -> list[tuple[dict[str, str], float]]:
    body = urllib.parse.urlencode({"query": expr, "time": at}).encode()
    with urllib.request.urlopen(f"{server.url}/api/v1/query", body, timeout=120) as answer:
        result: Any = json.load(answer)["data"]["result"]
    return [
        ({k: v for k, v in one["metric"].items() if k != "__name__"}, float(one["value"][1]))
        for one in result
    ]


def _rule(rule: dict[str, Any]) -> _Rule:
    return _Rule(
        rule["expr"],
        {name: str(value) for name, value in rule.get("labels", {}).items()},
        rule.get("record", ""),
        rule.get("alert", ""),
        _seconds(rule.get("for", "0s")),
        _seconds(rule.get("keep_firing_for", "0s")),
    )


def _seconds(text: str) -> float:
    return float(text[:-1]) * _UNITS[text[-1]]


_ORDER: Final = ("job", "phases", "evidence", "regression", "history", "hardware")
"""Files by what they read: later ones read the records of earlier ones; decisions and alerts come last."""


def _depth(file: Path) -> tuple[int, str]:
    name = file.name.split(".")[1]
    if name == "decision":
        return len(_ORDER) + 1, file.name
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), file.name)
