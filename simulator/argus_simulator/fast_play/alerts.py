"""What Prometheus makes of an alert's expression from evaluation to evaluation: pending, firing, kept, gone.

As `AlertingRule.Eval` of Prometheus has it (rules/alerting.go, 2.42 to 3.5).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from argus_core.remote_write import Labels


@dataclass(frozen=True)
class Spell:
    """An alert was pending, or firing, from one evaluation to another; times in ms, `end_ms` the last one."""

    labels: Labels
    """`alertname` among them."""
    state: str
    begin_ms: int
    end_ms: int


@dataclass
class _Active:
    since_ms: int
    firing: bool = False
    kept_since_ms: int | None = None


@dataclass
class AlertState:
    """What one alerting rule remembers.

    Args:
        for_ms: `for`.
        keep_ms: `keep_firing_for`.
    """

    for_ms: int
    keep_ms: int
    active: dict[Labels, _Active] = field(default_factory=dict)

    def evaluate(self, at_ms: int, found: Collection[Labels]) -> Iterator[tuple[Labels, str, float]]:
        """(labels, state, active since in seconds) of each alert after an evaluation that found these."""
        for labels in found:
            self.active.setdefault(labels, _Active(at_ms)).kept_since_ms = None
        for labels, alert in list(self.active.items()):
            if labels not in found and not self._kept(alert, at_ms):
                del self.active[labels]
                continue
            if not alert.firing and at_ms - alert.since_ms >= self.for_ms:
                alert.firing = True
            yield labels, "firing" if alert.firing else "pending", float(alert.since_ms // 1000)

    def _kept(self, alert: _Active, at_ms: int) -> bool:
        """Whether an alert whose expression holds no more fires on."""
        if not alert.firing or not self.keep_ms:
            return False
        if alert.kept_since_ms is None:
            alert.kept_since_ms = at_ms
        return at_ms - alert.kept_since_ms < self.keep_ms
