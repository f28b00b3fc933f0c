"""What libargus_nccl counted in a rank's process, summed by process group: counters that never fall.

The memory has a slot a communicator, which is given to another one once its communicator has ended, and the
group of a communicator may become known later. So what is added is what each has counted since the last read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from argus_core.nccl_page import SIZE_NAMES, Communicator, NcclPage, Operation


class NcclTotals:
    """Of one process.

    Attributes:
        collectives, bytes: by (group, function).
        sizes: operations by (group, class of size).
        network: by (group, function), number of operations with network steps.
        network_ns: by (group, function), from the hand-over to the end of the last step.
        launches, launch_ns: by group.
        kernels, kernel_ns: by (group, function), kernels that have ended.
        bus_ns, bus_bytes: by (group, class of size), of kernels that move data.
    """

    def __init__(self) -> None:
        self.collectives: Counter[tuple[str, str]] = Counter()
        self.bytes: Counter[tuple[str, str]] = Counter()
        self.sizes: Counter[tuple[str, str]] = Counter()
        self.network: Counter[tuple[str, str]] = Counter()
        self.network_ns: Counter[tuple[str, str]] = Counter()
        self.launches: Counter[str] = Counter()
        self.launch_ns: Counter[str] = Counter()
        self.kernels: Counter[tuple[str, str]] = Counter()
        self.kernel_ns: Counter[tuple[str, str]] = Counter()
        self.bus_ns: Counter[tuple[str, str]] = Counter()
        self.bus_bytes: Counter[tuple[str, str]] = Counter()
        self._read: dict[tuple[int, int], Communicator] = {}

    def add(self, page: NcclPage, groups: Mapping[int, str]) -> None:
        """Count what is new in `page`; `groups`: the name of each communicator's group by its hash."""
        read: dict[tuple[int, int], Communicator] = {}
        for one in page.communicators:
            key = one.slot, one.generation
            before = self._read.get(key)
            read[key] = one
            group = groups[one.hash]
            self.launches[group] += _grown(one.launches, before.launches if before else 0)
            self.launch_ns[group] += _grown(one.launch_ns, before.launch_ns if before else 0)
            for number, size in enumerate(SIZE_NAMES):
                self.bus_ns[group, size] += _grown(one.bus_ns[number], before.bus_ns[number] if before else 0)
                moved = before.bus_bytes[number] if before else 0
                self.bus_bytes[group, size] += _grown(one.bus_bytes[number], moved)
            known = {operation.function: operation for operation in before.operations} if before else {}
            for operation in one.operations:
                self._add(group, operation, known.get(operation.function))
        # A slot that was half written is read again at the next scrape.
        slots = {slot for slot, _ in read}
        self._read = {key: one for key, one in self._read.items() if key[0] not in slots} | read

    def _add(self, group: str, now: Operation, before: Operation | None) -> None:
        key = group, now.function
        self.collectives[key] += _grown(_counted(now), _counted(before) if before else 0)
        self.bytes[key] += _grown(now.bytes, before.bytes if before else 0)
        for number, name in enumerate(SIZE_NAMES):
            self.sizes[group, name] += _grown(now.by_size[number], before.by_size[number] if before else 0)
        self.network[key] += _grown(now.network_count, before.network_count if before else 0)
        self.network_ns[key] += _grown(now.network_ns, before.network_ns if before else 0)
        self.kernels[key] += _grown(now.kernels, before.kernels if before else 0)
        self.kernel_ns[key] += _grown(now.kernel_ns, before.kernel_ns if before else 0)


def _counted(operation: Operation) -> int:
    """Calls of the API where NCCL tells them, captured ones too; else what was handed to the GPU."""
    return max(operation.count, operation.called)


def _grown(now: int, before: int) -> int:
    """A peer may write any number: what falls adds nothing."""
    return max(now - before, 0)
