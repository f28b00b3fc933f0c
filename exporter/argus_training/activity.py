"""What the rank is doing, of all that it says it does at once: rules abstain outside `train`."""

from __future__ import annotations

from typing import Final

from argus_core.wire import Activity

_PRECEDENCE: Final = (Activity.COMPILE, Activity.CHECKPOINT, Activity.ROLLOUT, Activity.EVALUATION)
"""First one that is under way wins: a compilation within an evaluation is a compilation."""


class Activities:
    """Counts entries and exits, since a checkpoint may save several files, one within the other."""

    def __init__(self) -> None:
        self._under_way = [0] * len(Activity)

    def enter(self, activity: Activity) -> bool:
        """Whether this changed what is under way."""
        self._under_way[activity] += 1
        return self._under_way[activity] == 1

    def leave(self, activity: Activity) -> bool:
        """Whether this changed what is under way; leaving what was not entered changes nothing."""
        if not self._under_way[activity]:
            return False
        self._under_way[activity] -= 1
        return not self._under_way[activity]

    def current(self, *, warm: bool) -> Activity:
        """`warm`: warm-up is over."""
        for activity in _PRECEDENCE:
            if self._under_way[activity]:
                return activity
        return Activity.TRAIN if warm else Activity.WARMUP
