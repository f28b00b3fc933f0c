"""Totals of a rank's phases, by what they are and with whom they are compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from argus_exporter.place.topology import Group, RoutingTable
from argus_exporter.ranks.extremes import TrailingExtreme

_PHASES_LIMIT: Final = 256
"""Distinct (phase, kind, group, source) of one rank: users choose phase names, which must stay bounded."""


@dataclass(frozen=True)
class PhaseKey:
    phase: str
    kind: str
    group: str
    source: str


@dataclass
class PhaseTotals:
    named: str
    """The group as the producer named it; empty: routed by the phase."""
    longest: TrailingExtreme
    count: int = 0
    seconds: float = 0.0

    def add(self, now: float, seconds: float) -> None:
        """Count a span; `now` is monotonic seconds."""
        self.count += 1
        self.seconds += seconds
        self.longest.add(now, seconds)


class Phases(dict[PhaseKey, PhaseTotals]):
    """The phases of one rank.

    Args:
        extremes_seconds: trailing window of the longest span.
        clock: monotonic seconds.
    """

    def __init__(self, routing: RoutingTable, extremes_seconds: float, clock: Callable[[], float]) -> None:
        super().__init__()
        self.routing = routing
        self.clock = clock
        self.groups: dict[str, int] = {}
        """How many ranks each group has, where that is known."""
        self._waits: dict[tuple[str, str], str] = {}
        self._extremes_seconds = extremes_seconds

    def tell_waits(self, phase: str, kind: str, waits: str) -> bool:
        """Whom a phase may wait for, as the producer says; False where the rank has too many phases."""
        if (phase, kind) not in self._waits and len(self._waits) >= _PHASES_LIMIT:
            return False
        self._waits[phase, kind] = waits
        return True

    def waits(self) -> dict[tuple[str, str], str]:
        """By phase and kind, of each phase that was counted; `unknown` where the producer has not said."""
        return {(key.phase, key.kind): self.waits_of(key.phase, key.kind) for key in self}

    def waits_of(self, phase: str, kind: str) -> str:
        """As `waits` has it, of a phase that may not have been counted yet."""
        return self._waits.get((phase, kind), "unknown")

    def compared(self, kind: str) -> dict[str, str]:
        """Of each phase of a kind that was counted its group, of several the one that came last."""
        return {key.phase: key.group for key in self if key.kind == kind}

    def count(
        self, phase: str, kind: str, named: str, source: str, *, spans: int, seconds: float, longest: float
    ) -> bool:
        """Count spans of a phase, added up; False where the rank has too many phases."""
        totals = self.totals(phase, kind, named, source)
        if totals is None:
            return False
        totals.count += spans
        totals.seconds += seconds
        totals.longest.add(self.clock(), longest)
        return True

    def totals(self, phase: str, kind: str, named: str, source: str) -> PhaseTotals | None:
        """Of a phase, made where it is new; None where the rank has too many. `named`: group, or empty.

        Whoever keeps them asks anew after `reroute`.
        """
        group = self.routing.group_of_phase(phase, named, kind)
        key = PhaseKey(phase, kind, group.name, source)
        totals = self.get(key)
        if totals is None:
            if len(self) >= _PHASES_LIMIT:
                return None
            totals = self[key] = PhaseTotals(named, TrailingExtreme(self._extremes_seconds))
            self._expect(group)
        return totals

    def reroute(self, routing: RoutingTable, extremes_seconds: float) -> None:
        """Take the routing anew; a phase that it now compares with others ends as the old series."""
        self.routing, self._extremes_seconds = routing, extremes_seconds
        self.groups.clear()
        for key, totals in list(self.items()):
            group = routing.group_of_phase(key.phase, totals.named, key.kind)
            if group.name == key.group:
                self._expect(group)
            else:
                del self[key]

    def _expect(self, group: Group) -> None:
        if group.size > 0:
            self.groups[group.name] = group.size
