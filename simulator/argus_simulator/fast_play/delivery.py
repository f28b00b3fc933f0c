"""Which alerts Alertmanager tells anybody: those that nothing inhibits, from the wait of their route on.

Its `inhibit_rules` and `group_wait`, as Alertmanager reads them (inhibit/inhibit.go, 0.25 to 0.34). What it
waits before it adds to a message that is out already, and the hours of routes, are left out: they delay, and
hide nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from argus_simulator.fast_play.alerts import Spell
from argus_simulator.fast_play.rules import matches, milliseconds
from argus_simulator.stack import Notification

_MATCHER: Final = re.compile(r'\s*(\w+)\s*(=~|!~|!=|=)\s*"?(.*?)"?\s*')
_WAIT: Final = "30s"
"""Alertmanager's, where no route says another."""

Matchers = tuple[tuple[str, str, str], ...]
"""(label, operator, value)."""


@dataclass(frozen=True)
class _Inhibition:
    source: Matchers
    target: Matchers
    equal: tuple[str, ...]

    def inhibits(self, source: Mapping[str, str], target: Mapping[str, str]) -> bool:
        """Whether one alert silences another; one that is both never does so to one that is both."""
        return (
            _fits(self.source, source)
            and _fits(self.target, target)
            and not (_fits(self.target, source) and _fits(self.source, target))
            and all(source.get(name, "") == target.get(name, "") for name in self.equal)
        )


class Delivery:
    """What a configuration of Alertmanager makes of alerts.

    Args:
        file: its `alertmanager.yaml`.
    """

    def __init__(self, file: Path) -> None:
        content: dict[str, Any] = yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader)
        self._inhibitions = [
            _Inhibition(
                _matchers(one["source_matchers"]),
                _matchers(one["target_matchers"]),
                tuple(one.get("equal", ())),
            )
            for one in content.get("inhibit_rules", ())
        ]
        route = content["route"]
        self._wait_ms = milliseconds(route.get("group_wait", _WAIT))
        self._routes = [
            (_matchers(one["matchers"]), milliseconds(one["group_wait"]))
            for one in route.get("routes", ())
            if "group_wait" in one
        ]

    def notifications(self, spells: Sequence[Spell]) -> list[Notification]:
        """A message when each alert begins and ends to fire, unless others silence it all the while."""
        firing = [(dict(spell.labels), spell) for spell in spells if spell.state == "firing"]
        found: list[Notification] = []
        for labels, spell in firing:
            sources = [
                source
                for of_source, source in firing
                if source.begin_ms <= spell.end_ms
                and any(one.inhibits(of_source, labels) for one in self._inhibitions)
            ]
            told_ms = _first_free(spell.begin_ms + self._wait(labels), sources)
            if told_ms <= spell.end_ms:
                begin, end = spell.begin_ms / 1000, spell.end_ms / 1000
                found += [
                    Notification("", told_ms / 1000, "firing", labels, {}, begin),
                    Notification("", end, "resolved", labels, {}, begin, end),
                ]
        return found

    def _wait(self, labels: Mapping[str, str]) -> int:
        return next((wait for matchers, wait in self._routes if _fits(matchers, labels)), self._wait_ms)


def _first_free(at_ms: int, sources: Sequence[Spell]) -> int:
    """The first moment from `at_ms` on at which none of the sources fires."""
    for source in sorted(sources, key=lambda one: one.begin_ms):
        if source.begin_ms <= at_ms <= source.end_ms:
            at_ms = source.end_ms + 1
    return at_ms


def _matchers(texts: Sequence[str]) -> Matchers:
    found = [_MATCHER.fullmatch(text) for text in texts]
    return tuple((one[1], one[2], one[3]) for one in found if one is not None)


def _fits(matchers: Matchers, labels: Mapping[str, str]) -> bool:
    return all(matches(labels.get(label, ""), operator, value) for label, operator, value in matchers)
