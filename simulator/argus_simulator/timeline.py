"""Plays the operations of all ranks against one another: who waits for whom, in whole nanoseconds.

Each rank has one queue of operations. `Busy` takes time; `Join` is a collective: it starts at the rank's own
arrival and ends, for all members alike, at the latest arrival plus the body. Point-to-point operations of a
pipeline would be two more kinds here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from argus_simulator.errors import ArgusSimulatorError


class Deadlock(ArgusSimulatorError):
    """Some rank waits for a collective that another member never enters."""


@dataclass(frozen=True)
class Busy:
    """The rank itself works (or idles, where `label` is empty)."""

    label: str
    duration_ns: int


@dataclass(frozen=True)
class Join:
    """A collective among `members`; `key` tells it from other collectives of the step."""

    label: str
    key: tuple[str, int]
    body_ns: int
    members: tuple[int, ...]


Operation = Busy | Join


@dataclass(frozen=True)
class Interval:
    """A finished operation."""

    label: str
    start_ns: int
    end_ns: int

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


def execute(programs: Sequence[Sequence[Operation]], starts_ns: Sequence[int]) -> list[list[Interval]]:
    """Intervals of each rank, in order and without gaps, from its start time on.

    Raises:
        Deadlock: the programs do not match.
    """
    now = list(starts_ns)
    done: list[list[Interval]] = [[] for _ in programs]
    arrivals: dict[tuple[str, int], dict[int, int]] = {}
    progressed = True
    while progressed:
        progressed = False
        for rank, program in enumerate(programs):
            while len(done[rank]) < len(program):
                operation = program[len(done[rank])]
                if isinstance(operation, Join):
                    arrived = arrivals.setdefault(operation.key, {})
                    arrived.setdefault(rank, now[rank])
                    if len(arrived) < len(operation.members):
                        break
                    end = max(arrived.values()) + operation.body_ns
                else:
                    end = now[rank] + operation.duration_ns
                done[rank].append(Interval(operation.label, now[rank], end))
                now[rank] = end
                progressed = True
    for rank, program in enumerate(programs):
        if len(done[rank]) < len(program):
            stuck = program[len(done[rank])]
            raise Deadlock(f"rank {rank} waits forever in {stuck.label}: its peers never enter it")
    return done
