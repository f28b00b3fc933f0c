"""The chain of things that waited for one another, from the end of the window back to its beginning.

Going back from an operation: a communication leads to the member that came last; a computation to what freed
its stream or gave it its input; and where the GPU had nothing to do, to the host, launch by launch, until the
host itself was waiting for the GPU. Every moment of the window belongs to one link of the chain, so what a
link takes beyond its expectation is what the job lost to it.

After KAIR stage 3 (backward blame attribution) and EROICA's critical path; the chain crosses ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from argus_traces.exchanges import Exchanges
from argus_traces.expectation import Floats, Ints, comparable, expected_by, peers_of
from argus_traces.operations import Fleet, Operations

# Two kernels of a stream follow each other within this; beyond, something else was waited for.
_FOLLOWS_NS: Final = 10_000
# Ends may lie this much after what they caused: rounding and alignment.
_SLACK_NS: Final = 3_000

LinkKind = Literal["operation", "exchange", "host", "edge"]


@dataclass(frozen=True, slots=True)
class Link:
    """One part of the chain: [begin, end) in ns of the common clock.

    Attributes:
        operation: the operation that ran, or whose launch the host was on the way to.
        exchange: number of the exchange whose transfer this is, -1: none.
        expected: what peers need for the like, ns.
    """

    kind: LinkKind
    rank: int
    begin: int
    end: int
    operation: int
    exchange: int
    expected: float

    @property
    def excess(self) -> float:
        """Time beyond the expectation, ns; negative where it was faster."""
        return self.end - self.begin - self.expected


@dataclass(frozen=True)
class Model:
    """Everything a walk needs, by operation (n,) or exchange (m,). Times in ns.

    Attributes:
        duration, expected: of each operation; communications count only by `body`.
        has_peers: whether another rank does the same.
        arrival: last start among the members of each exchange; body: from there to the end.
        last_member: the operation that came last.
        before: the operation launched before on the same rank, -1: none.
        gap, expected_gap: host time since that launch.
        tail, expected_tail: host time since everything launched before had ended.
        usually_drained: that the GPU is empty at this launch on most ranks and steps.
    """

    fleet: Fleet
    operations: Operations
    exchanges: Exchanges
    classes: Ints
    duration: Floats
    expected: Floats
    has_peers: NDArray[np.bool_]
    arrival: Ints
    last_member: Ints
    body: Floats
    expected_body: Floats
    before: Ints
    blocker: Ints
    gap: Floats
    expected_gap: Floats
    tail: Floats
    expected_tail: Floats
    usually_drained: NDArray[np.bool_]


def model(fleet: Fleet, operations: Operations, exchanges: Exchanges) -> Model:
    """Measure everything once; `operations` are aligned."""
    rank = operations["rank"].astype(np.int64)
    classes = comparable(fleet, operations)
    duration = (operations["end"] - operations["start"]).astype(np.float64)
    arrival, last_member, body = _bodies(operations, exchanges)
    family = _numbers([f"{one.family}#{one.occurrence}" for one in exchanges.all])
    scope = _numbers([one.scope for one in exchanges.all])
    before, blocker, gap, tail, drained = _host(operations)
    share = np.bincount(classes, drained) / np.maximum(np.bincount(classes), 1)
    return Model(
        fleet, operations, exchanges, classes,
        duration, expected_by(classes, rank, duration), peers_of(classes, rank),
        arrival, last_member, body, expected_by(family, scope, body),
        before, blocker, gap, expected_by(classes, rank, gap), tail, expected_by(classes, rank, tail),
        share[classes] >= 0.5 if len(classes) else np.zeros(0, bool),
    )  # fmt: skip


def walk(of: Model, last: int | None = None) -> list[Link]:
    """The chain that ends with operation `last` (default: what ended last of all), latest link first."""
    operations = of.operations
    if not len(operations):
        return []
    position = int(np.argmax(operations["end"])) if last is None else last
    by_end = _by_end(operations)
    links: list[Link] = []
    for _ in range(2 * len(operations)):
        step = _ran(of, position, links)
        following = _reason(of, step, by_end, links)
        if following < 0:
            break
        position = following
    return links


def _ran(of: Model, position: int, links: list[Link]) -> int:
    """Add what the operation itself took; the operation at whose start the chain goes on."""
    operations = of.operations
    own = [int(number) for number in of.exchanges.of[position] if number >= 0]
    if not own:
        begin, end = int(operations["start"][position]), int(operations["end"][position])
        rank = int(operations["rank"][position])
        links.append(Link("operation", rank, begin, end, position, -1, float(of.expected[position])))
        return position
    number = max(own, key=lambda one: int(of.arrival[one]))
    last = int(of.last_member[number])
    begin = int(of.arrival[number])
    end = max(int(operations["end"][position]), begin)
    rank = int(operations["rank"][last])
    links.append(Link("exchange", rank, begin, end, last, number, float(of.expected_body[number])))
    return last


def _reason(of: Model, position: int, by_end: list[tuple[Ints, Ints]], links: list[Link]) -> int:
    """Why the operation did not start earlier: the operation before it in the chain, -1: the window began."""
    operations = of.operations
    one = operations[position]
    rank, start, launch = int(one["rank"]), int(one["start"]), int(one["launch"])
    cause = _freed_by(operations, position, by_end[rank])
    freed = int(operations["end"][cause]) if cause >= 0 else -(1 << 62)
    if not one["launched"] or launch <= freed:
        if cause < 0:
            return -1
        if start - freed > _FOLLOWS_NS:
            links.append(Link("edge", rank, freed, start, position, -1, 0.0))
        return cause
    links.append(Link("edge", rank, launch, start, position, -1, float(start - launch)))
    return _along_host(of, position, links)


def _freed_by(operations: Operations, position: int, by_end: tuple[Ints, Ints]) -> int:
    """What ended last on the rank before the operation started: first choice its own stream, -1: nothing."""
    start, stream = int(operations["start"][position]), int(operations["stream"][position])
    ends, numbers = by_end
    index = int(np.searchsorted(ends, start + _SLACK_NS, side="right")) - 1
    found = -1
    while index >= 0 and (found < 0 or ends[index] >= start - _FOLLOWS_NS):
        candidate = int(numbers[index])
        if candidate != position and operations["start"][candidate] < start:
            if found < 0:
                found = candidate
            if operations["stream"][candidate] == stream and ends[index] >= start - _FOLLOWS_NS:
                return candidate
        index -= 1
    return found


def _along_host(of: Model, position: int, links: list[Link]) -> int:
    """Follow the launching thread back; the operation that it waited for, -1: the window began."""
    operations = of.operations
    while True:
        launch, rank = int(operations["launch"][position]), int(operations["rank"][position])
        before, blocker = int(of.before[position]), int(of.blocker[position])
        if before < 0:
            return -1
        if of.usually_drained[position]:
            begin = launch - int(of.tail[position])
            links.append(Link("host", rank, begin, launch, position, -1, float(of.expected_tail[position])))
            if blocker >= 0 and operations["end"][blocker] >= operations["launch"][before]:
                return blocker
        else:
            # What the host lost while the GPU still had work cost nothing.
            gap = float(of.gap[position])
            expected = max(float(of.expected_gap[position]), gap - float(of.tail[position]))
            links.append(Link("host", rank, launch - int(gap), launch, position, -1, expected))
        position = before


def _by_end(operations: Operations) -> list[tuple[Ints, Ints]]:
    """For each rank: ends ascending, and whose they are."""
    found = []
    for rank in range(int(operations["rank"].max()) + 1):
        numbers = np.flatnonzero(operations["rank"] == rank)
        order = np.argsort(operations["end"][numbers], kind="stable")
        found.append((operations["end"][numbers][order].astype(np.int64), numbers[order]))
    return found


def _bodies(operations: Operations, exchanges: Exchanges) -> tuple[Ints, Ints, Floats]:
    count = len(exchanges.all)
    arrival, last = np.zeros(count, np.int64), np.zeros(count, np.int64)
    body = np.zeros(count)
    for number, exchange in enumerate(exchanges.all):
        members = np.array(exchange.members)
        starts = operations["start"][members]
        last[number] = members[np.argmax(starts)]
        arrival[number] = starts.max()
        body[number] = max(float(np.median(operations["end"][members])) - float(starts.max()), 0.0)
    return arrival, last, body


def _numbers(texts: list[str]) -> Ints:
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)


def _host(operations: Operations) -> tuple[Ints, Ints, Floats, Floats, NDArray[np.bool_]]:
    """(launched before, ended last of those launched before, gap, tail, GPU empty) of each operation."""
    count = len(operations)
    before, blocker = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    gap, tail, drained = np.zeros(count), np.zeros(count), np.zeros(count, bool)
    for _, order in _launch_orders(operations):
        launches, ends = operations["launch"][order], operations["end"][order]
        reach = np.maximum.accumulate(ends)
        which = np.maximum.accumulate(np.where(ends == reach, np.arange(len(order)), 0))
        before[order[1:]] = order[:-1]
        blocker[order[1:]] = order[which[:-1]]
        gap[order[1:]] = np.maximum(launches[1:] - launches[:-1], 0)
        since = np.maximum(reach[:-1], launches[:-1])
        tail[order[1:]] = np.clip(launches[1:] - since, 0, None)
        drained[order[1:]] = reach[:-1] <= launches[1:]
    return before, blocker, gap, tail, drained


def _launch_orders(operations: Operations) -> Iterator[tuple[int, Ints]]:
    for rank in range(int(operations["rank"].max(initial=-1)) + 1):
        numbers = np.flatnonzero((operations["rank"] == rank) & operations["launched"])
        yield rank, numbers[np.argsort(operations["launch"][numbers], kind="stable")]
