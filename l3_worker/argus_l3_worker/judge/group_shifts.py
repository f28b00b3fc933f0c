"""What is found of a group of ranks, and for how many windows it holds."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# Share of the ranks of two windows' groups that both have. Of two random quarters or halves of a role it is a
# seventh or a third.
_SAME_RANKS: Final = 2 / 3

Key = tuple[str, str, str, str, str, str, bool]
"""(role or stage, kernel, stream, coordinate, value, cause, in_tail)."""


@dataclass(frozen=True)
class GroupShift:
    """One `argus_l3_group_shift`.

    Attributes:
        role: the role, or `pp<index>` where the ranks of several roles of one pipeline stage were compared.
        shift: signed log distance of the ranks at this value from the others. Positive is slower; where
            neither side is a minority both are reported, with opposite signs.
        ranks: those of the group, of `compared`.
        in_tail: few launches take far longer, the usual ones do not.
    """

    training_job: str
    role: str
    kernel: str
    stream: str
    coordinate: str
    value: str
    cause: str
    team: str
    shift: float
    ranks: tuple[str, ...]
    compared: int
    in_tail: bool = False

    @property
    def key(self) -> Key:
        return self.role, self.kernel, self.stream, self.coordinate, self.value, self.cause, self.in_tail


class GroupHistory:
    """The last windows of one job; a group shift is what `needed` of them say of the same ranks.

    With the same sign, too. Ranks that fall apart by chance fall apart elsewhere the next time.
    """

    def __init__(self, windows: int, needed: int) -> None:
        self._windows: deque[dict[Key, GroupShift]] = deque(maxlen=windows)
        self._needed = needed

    def add(self, shifts: Sequence[GroupShift]) -> None:
        """Take the next window; older ones fall out."""
        self._windows.append({shift.key: shift for shift in shifts})

    def persistent(self) -> list[GroupShift]:
        """The newest of each that persists, largest first."""
        newest: dict[Key, GroupShift] = {}
        for window in self._windows:
            newest.update(window)
        lasting = [
            shift
            for key, shift in newest.items()
            if sum(1 for w in self._windows if key in w and _alike(w[key], shift)) >= self._needed
        ]
        return sorted(lasting, key=lambda shift: (-abs(shift.shift), shift.key))


def _alike(one: GroupShift, other: GroupShift) -> bool:
    ranks, others = set(one.ranks), set(other.ranks)
    return one.shift * other.shift > 0.0 and len(ranks & others) >= _SAME_RANKS * len(ranks | others)
