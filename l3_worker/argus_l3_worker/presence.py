"""Which ranks of a job were there, and whether too many of them vanished for it to be judged.

A store that lost a part of its sources answers without a warning, and half of a job looks like a job: ranks
are judged among others than before. So the worker waits for them, and then judges those who are there.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from argus_core import catalogue
from argus_l3_worker.read.prometheus import Prometheus, selector

PATIENCE_SECONDS: Final = 1800.0
"""How long vanished ranks are waited for: what is restarted by hand is back by then. A choice."""
# More of a job than a host or two that fail, which their own alert tells of; and never one rank alone.
_SHARE: Final = 0.1
_LEAST: Final = 2


@dataclass(frozen=True)
class Absence:
    """So many of a job's ranks vanished; `waited`: for long enough, the others are judged."""

    missing: int
    known: int
    waited: bool

    def __str__(self) -> str:
        gone = f"{self.missing} of {self.known} ranks vanished without leaving"
        if self.waited:
            return f"{gone} more than {PATIENCE_SECONDS / 60:.0f} minutes ago: those who are there are judged"
        return f"{gone}: does the store hear all exporters?"


@dataclass
class Presence:
    """The ranks of one job."""

    _known: set[str] = field(default_factory=set)
    _since: float | None = None

    async def absence(
        self, prometheus: Prometheus, job: str, here: Collection[str], at: float
    ) -> Absence | None:
        """Whether too many ranks that were there before are not any more, at Unix time `at`.

        None, too, where those who are there say that their groups are whole: the others have left.

        Args:
            here: ranks that have an identity now; those whose process was lost are not there.

        Raises:
            QueryError: no answer, or an incomplete one.
        """
        in_job = {"training_job": job}
        down = await prometheus.instant(f"{selector(catalogue.RANK_UP.name, in_job)} == 0", at)
        lost = {one.labels.get("rank", "") for one in down}
        present = set(here) - lost
        self._known |= present
        missing = len(self._known - present)
        if missing < _LEAST or missing <= _SHARE * len(self._known):
            self._since = None
            return None
        expected = selector(catalogue.GROUP_EXPECTED_RANKS.name, in_job)
        lacking = await prometheus.instant(f"max by (group) ({expected}) - count by (group) ({expected})", at)
        if lacking and not lost and all(one.value <= 0.0 for one in lacking):
            self._known, self._since = present, None
            return None
        if self._since is None:
            self._since = at
        return Absence(missing, len(self._known), at - self._since >= PATIENCE_SECONDS)
