"""Which communications of different ranks are one: collectives, and the two halves of a transfer.

A collective is matched by its group, phase and NCCL's sequence number, a kernel of several collectives by the
list of them, where all kernels of its members say that: then what one of them lacks (the window cut the step,
records were dropped) puts no other in its place.
Else it is matched by its number within the step; a transfer between pipeline stages by sender, receiver,
direction and number within the step. Where the members disagree on how many there were, that step's
communications of that group stay unmatched.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_core.kernel_names import collective_phase
from argus_traces.operations import COMMUNICATION, Fleet

_HALF: Final = "send|recv|receive"
_WAY: Final = "forward|backward|fwd|bwd|prev|next|activation|grad"
_HALF_FIRST: Final = re.compile(rf"({_HALF})[-_ ]?({_WAY})", re.IGNORECASE)
_WAY_FIRST: Final = re.compile(rf"({_WAY})[-_ ]?({_HALF})", re.IGNORECASE)
_FORWARD: Final = frozenset(("forward", "fwd", "activation"))
_BACKWARD: Final = frozenset(("backward", "bwd", "grad"))


@dataclass(frozen=True)
class Exchange:
    """One communication between ranks.

    Attributes:
        members: positions among the fleet's operations, one a rank that has a trace.
        label: what it is called in reports, such as `all_reduce dp:pp0.tp0`.
        family, scope: exchanges of one family and occurrence compare; the scope tells groups apart.
        transfer: the two halves of a point-to-point transfer.
    """

    members: tuple[int, ...]
    label: str
    family: str
    scope: str
    step: int
    occurrence: int
    transfer: bool = False


@dataclass(frozen=True)
class Exchanges:
    """All that were matched; `of`: numbers of each operation's exchanges, -1: none, shape (n, 2)."""

    all: tuple[Exchange, ...]
    of: NDArray[np.int64]
    unmatched: int
    """Communications without a partner among the traces."""


_Key = tuple[str, str, str, bool, int]
"""family, scope, label, transfer, step."""
_Members = dict[int, list[int]]
"""By rank, the positions of its operations in the order of their starts."""
_Exact = tuple[str | None, int]
"""What NCCL counts the operations of a communicator by, function and number; of several the whole list."""


def match(fleet: Fleet) -> Exchanges:
    """Find the partners of every communication."""
    found: dict[_Key, _Members] = defaultdict(lambda: defaultdict(list))
    operations = fleet.operations
    communications = np.flatnonzero(operations["kind"] == COMMUNICATION)
    at = {_place(trace.window.coordinates): rank for rank, trace in enumerate(fleet.traces)}
    stages = 1 + max((trace.window.coordinates.get("pp", 0) for trace in fleet.traces), default=0)
    for position in communications.tolist():
        one = operations[position]
        if one["group"] < 0:
            continue
        phase, group = fleet.strings[one["phase"]], fleet.strings[one["group"]]
        rank, step = int(one["rank"]), int(one["step"])
        halves = transfers(phase)
        for half, direction in halves:
            key = _transfer_key(fleet, rank, half, direction, at, stages, step)
            if key is not None:
                found[key][rank].append(position)
        if not halves:
            dimension = group.partition(":")[0]
            found[f"{phase} {dimension}", group, f"{phase} {group}", False, step][rank].append(position)
    return _number(fleet, found, len(communications))


def transfers(phase: str) -> list[tuple[str, str]]:
    """(half, direction) of the point-to-point transfers that a phase is named after.

    Megatron's functions say `send_forward_recv_backward`, its timers `forward-send-backward-recv`, and
    DeepSpeed `send-activation`: what comes first tells how to read the rest.
    """
    half_first, way_first = _HALF_FIRST.search(phase), _WAY_FIRST.search(phase)
    if way_first and (not half_first or way_first.start() < half_first.start()):
        return [(half.lower(), way.lower()) for way, half in _WAY_FIRST.findall(phase)]
    return [(half.lower(), way.lower()) for half, way in _HALF_FIRST.findall(phase)]


def _place(coordinates: dict[str, int]) -> tuple[int, int, int]:
    return coordinates.get("pp", 0), coordinates.get("dp", 0), coordinates.get("tp", 0)


def _transfer_key(
    fleet: Fleet,
    rank: int,
    half: str,
    direction: str,
    at: dict[tuple[int, int, int], int],
    stages: int,
    step: int,
) -> _Key | None:
    if direction not in _FORWARD | _BACKWARD:
        return None
    stage, dp, tp = _place(fleet.traces[rank].window.coordinates)
    towards = 1 if direction in _FORWARD else -1
    sends = half == "send"
    other = at.get(((stage + (towards if sends else -towards)) % stages, dp, tp))
    if other is None or other == rank:
        return None
    sender, receiver = (rank, other) if sends else (other, rank)
    name = "forward" if towards > 0 else "backward"
    numbers = [fleet.traces[one].window.rank for one in (sender, receiver)]
    sending_stage = _place(fleet.traces[sender].window.coordinates)[0]
    return (
        f"send_{name} pp{sending_stage}",
        f"rank {numbers[0]} to {numbers[1]}",
        f"send_{name} from rank {numbers[0]} to rank {numbers[1]}",
        True,
        step,
    )


def _number(fleet: Fleet, found: dict[_Key, _Members], communications: int) -> Exchanges:
    exchanges: list[Exchange] = []
    of = np.full((len(fleet.operations), 2), -1, np.int64)
    for (family, scope, label, transfer, step), all_partners in _partners(fleet, found):
        for occurrence, partners in enumerate(all_partners):
            number = len(exchanges)
            exchanges.append(Exchange(partners, label, family, scope, step, occurrence, transfer))
            for position in partners:
                of[position, 0 if of[position, 0] < 0 else 1] = number
    return Exchanges(tuple(exchanges), of, communications - int((of[:, 0] >= 0).sum()))


def _partners(fleet: Fleet, found: dict[_Key, _Members]) -> Iterator[tuple[_Key, list[tuple[int, ...]]]]:
    """What belongs together, in the order in which it happened, by key."""
    by_name: dict[tuple[str, str, str, bool], list[_Key]] = defaultdict(list)
    for key in found:
        by_name[key[:4]].append(key)
    for name, keys in by_name.items():
        exact = None if name[3] else _exact(fleet, [found[key] for key in keys])
        if exact is not None:
            by_step: dict[int, list[tuple[int, ...]]] = defaultdict(list)
            for partners in exact:
                by_step[int(fleet.operations["step"][partners[0]])].append(partners)
            yield from (((*name, step), of_step) for step, of_step in by_step.items())
            continue
        for key in keys:
            members = found[key]
            if len(members) > 1 and len({len(positions) for positions in members.values()}) == 1:
                yield key, list(zip(*members.values(), strict=True))


def _what(fleet: Fleet, one: np.void) -> str | None:
    """The list of a kernel that does several collectives, else the function of its one."""
    return fleet.strings[one["list"]] if one["list"] >= 0 else collective_phase(fleet.strings[one["name"]])


def _exact(fleet: Fleet, steps: Sequence[_Members]) -> list[tuple[int, ...]] | None:
    """The collectives of a group that each member has, by NCCL's numbers; None: not all of them say theirs.

    Numbers are of one communicator, which no two ranks number alike: where a rank has two for the group, or a
    number twice, its numbers say nothing.
    """
    of_rank: dict[int, dict[_Exact, int]] = defaultdict(dict)
    communicators: dict[int, set[int]] = defaultdict(set)
    for members in steps:
        for rank, positions in members.items():
            for position in positions:
                one = fleet.operations[position]
                number = _what(fleet, one), int(one["sequence"])
                if number[1] < 0 or number in of_rank[rank]:
                    return None
                of_rank[rank][number] = position
                communicators[rank].add(int(one["communicator"]))
    if len(of_rank) < 2 or any(len(known) > 1 for known in communicators.values()):
        return None
    first, *others = of_rank.values()
    return [
        (position, *(other[number] for other in others))
        for number, position in sorted(first.items(), key=lambda item: item[1])
        if all(number in other for other in others)
    ]
