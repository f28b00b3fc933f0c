"""What caused the loss in a simulated timeline. Never written into a trace."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Truth:
    """Nothing, ranks, or a process group.

    causes: names as in verdicts; any of them is right.
    """

    causes: tuple[str, ...] = ()
    ranks: frozenset[int] = frozenset()
    group: str = ""

    @property
    def healthy(self) -> bool:
        return not self.causes
