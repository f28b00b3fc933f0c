"""The memory of libargus_nccl of one simulated rank, which its exporter reads."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from argus_core import nccl_page
from argus_core.nccl_page import STEP_STATES
from argus_simulator.engine.ring import Wait

_STATES: Final = len(STEP_STATES)

Waiting = tuple[int, str, str, int, Wait]
"""Position of the operation in the rank's step, its group and function, the peer, its oldest step's state."""


@dataclass
class _Peer:
    """What a communicator's memory says of one other member."""

    last_ns: int = 0
    carried: tuple[int, int] = (0, 0)
    ns: Sequence[int] = (0,) * _STATES
    steps: Sequence[int] = (0,) * _STATES
    oldest: list[int] = field(default_factory=lambda: [0] * _STATES)
    functions: list[int] = field(default_factory=lambda: [0, 0])
    entered: list[int] = field(default_factory=lambda: [0, 0])
    moved: list[int] = field(default_factory=lambda: [0, 0])

    def pack(self, member: int) -> bytes:
        return nccl_page.PEER.pack(
            member + 1, self.last_ns, *self.carried, *self.ns, *self.steps, *self.oldest, *self.oldest,
            *self.functions, *self.entered, *self.moved,
        )  # fmt: skip


class Memory:
    """See the module.

    Args:
        groups: members of the rank's process groups, by name; each has a communicator.
    """

    def __init__(self, rank: int, groups: Mapping[str, Sequence[int]]) -> None:
        self._groups = dict(groups)
        self._slots = {name: slot for slot, name in enumerate(groups)}
        self._peers: dict[str, dict[int, _Peer]] = {name: {} for name in groups}
        self.descriptor = nccl_page.make()
        fields: dict[str, int] = dict.fromkeys(nccl_page.HEADER_FIELDS, 0)
        fields |= {"magic": nccl_page.MAGIC, "version": nccl_page.VERSION, "state": 1, "table": 6}
        fields |= {"nccl_version": 23007, "mask": 0x816, "communicators": len(groups)}
        os.pwrite(self.descriptor, nccl_page.HEADER.pack(*fields.values()), 0)
        for name, members in groups.items():
            told: dict[str, int | bytes] = dict.fromkeys(nccl_page.COMMUNICATOR_FIELDS, 0)
            told |= {
                "hash": zlib.crc32(name.encode()) + 1,
                "rank": members.index(rank),
                "ranks": len(members),
            }
            told |= {"state": nccl_page.LIVE, "generation": 1, "name": b""}
            self._put(name, 0, nccl_page.COMMUNICATOR.pack(*told.values()))

    def counts(self, group: str, function: str, words: Mapping[str, int]) -> None:
        """Operations of one function: `nccl_page.OPERATION_FIELDS` that are not 0, but for the sizes."""
        number = nccl_page.FUNCTIONS.index(function)
        singles = [words.get(name, 0) for name in nccl_page.OPERATION_FIELDS[:-1]]
        sizes = [0] * len(nccl_page.SIZE_NAMES)
        each = words["bytes"] // max(words["count"], 1)
        sizes[sum(each > limit for limit in nccl_page.SIZE_LIMITS)] = words["count"]
        packed = nccl_page.OPERATION.pack(*singles, *sizes)
        self._put(group, nccl_page.COMMUNICATOR.size + number * nccl_page.OPERATION.size, packed)

    def waited(
        self,
        group: str,
        rank: int,
        ns: Sequence[int],
        steps: Sequence[int],
        carried: tuple[int, int],
        last_ns: int,
    ) -> None:
        """What steps to and from a member have waited for since the start, and bytes sent and received."""
        peer = self._peer(group, rank)
        peer.ns, peer.steps, peer.carried, peer.last_ns = ns, steps, carried, last_ns
        self._write(group)

    def stands(self, waits: Sequence[Waiting], now_ns: int) -> None:
        """From now on. `waits`: in their order; what is behind another one to the same peer is not begun."""
        for number, (position, group, function, rank, wait) in enumerate(waits):
            peer = self._peer(group, rank)
            way = not wait.startswith("send")
            if peer.moved[way]:
                continue
            # Launched one after the other; sends and receives of one all-to-all are calls of their own.
            entered = now_ns + position * 1_000_000 + number * 1_000 * (function in ("Send", "Recv"))
            peer.oldest[STEP_STATES.index(wait)] = 1
            peer.functions[way], peer.entered[way] = nccl_page.FUNCTIONS.index(function), entered
            peer.moved[way] = peer.last_ns = now_ns
        for group in self._slots:
            self._write(group)

    def goes_on(self) -> None:
        """Nothing stands any more."""
        for group, peers in self._peers.items():
            for member, peer in peers.items():
                peers[member] = _Peer(peer.last_ns, peer.carried, peer.ns, peer.steps)
            self._write(group)

    def close(self) -> None:
        os.close(self.descriptor)

    def _peer(self, group: str, rank: int) -> _Peer:
        return self._peers[group].setdefault(self._groups[group].index(rank), _Peer())

    def _write(self, group: str) -> None:
        """As many peers as there are places before the last one, which the library keeps for all others."""
        found = sorted(self._peers[group].items())[: nccl_page.PEERS - 1]
        self._put(group, nccl_page.PEERS_AT, b"".join(peer.pack(member) for member, peer in found))

    def _put(self, group: str, at: int, packed: bytes) -> None:
        os.pwrite(self.descriptor, packed, nccl_page.place_of(self._slots[group]) + at)
