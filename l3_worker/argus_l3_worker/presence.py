"""Which ranks of a job there should be, and whether too many of them are missing for it to be judged.

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
    """So many of a job's ranks are missing; `waited`: for long enough, the others are judged."""

    missing: int
    known: int
    waited: bool

    def __str__(self) -> str:
        gone = f"{self.missing} of {self.known} ranks are missing"
        if self.waited:
            return f"{gone} for more than {PATIENCE_SECONDS / 60:.0f} minutes: those who are there are judged"
        return f"{gone}, and none said that it leaves: does the store hear all exporters?"


@dataclass
class Presence:
    """The ranks of one job."""

    _known: set[str] = field(default_factory=set)
    _since: float | None = None

    async def absence(
        self, prometheus: Prometheus, job: str, here: Collection[str], at: float
    ) -> Absence | None:
        """Whether too many ranks are missing at Unix time `at`: of those seen before, and of the job's size.

        None, too, where those who are there are as many as they say: the others have left.

        Args:
            here: ranks that have an identity now; those whose process was lost are not there.

        Raises:
            QueryError: no answer, or an incomplete one.
        """
        in_job = {"training_job": job}
        down = await prometheus.instant(f"{selector(catalogue.RANK_UP.name, in_job)} == 0", at)
        sizes = await prometheus.instant(f"max({selector(catalogue.JOB_WORLD_SIZE.name, in_job)})", at)
        lost = {one.labels.get("rank", "") for one in down}
        present = set(here) - lost
        size = int(max((one.value for one in sizes), default=0.0))
        left = 0 < size <= len(present) and not lost
        self._known = present if left else self._known | present
        # A worker that has just started has seen nobody: it knows the size alone.
        known = max(len(self._known), size)
        missing = known - len(present)
        if missing < _LEAST or missing <= _SHARE * known:
            self._since = None
            return None
        if self._since is None:
            self._since = at
        return Absence(missing, known, at - self._since >= PATIENCE_SECONDS)
