"""From the schedules of all ranks to a plan: one array for each thing that is known of the nodes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_core import wire
from argus_core.kernel_names import is_memory_operation
from argus_simulator.engine.levels import Levels
from argus_simulator.engine.plan import SPAN_DTYPE, Ints, Plan
from argus_simulator.engine.schedule import STREAMS, Extras, RankSchedule
from argus_simulator.engine.settings import HostSettings, ModelSettings
from argus_simulator.kernel_symbols import COPY_TO_DEVICE
from argus_simulator.topology import Topology

_COPY_KILOBYTES: Final = 16_384


@functools.lru_cache(maxsize=64)
def compile_plan(topology: Topology, model: ModelSettings, host: HostSettings, extras: Extras) -> Plan:
    """The plan; shared by all jobs alike, so nobody may change it.

    Raises:
        Deadlock: the schedules of the ranks do not fit together.
    """
    schedules = [RankSchedule(topology, rank, model, extras) for rank in range(topology.ranks)]
    return _Compiler(topology, schedules, host).compile()


class _Compiler:
    def __init__(self, topology: Topology, schedules: Sequence[RankSchedule], host: HostSettings) -> None:
        self.topology, self.schedules, self.host = topology, schedules, host
        self.levels = Levels(topology, schedules)
        self.node_at = self.levels.node_at

    def compile(self) -> Plan:
        nodes, exchanges = self.levels.nodes, self.levels.exchanges
        flat = [None if position < 0 else self.schedules[rank].nodes[position] for rank, position in nodes]
        count = len(nodes)
        names = _Table()
        phases = _Table()
        phase = np.array([phases.id(node.phase if node else "") for node in flat])
        width = max(len(node.needs) for node in flat if node) + 2
        needs = np.empty((width, count), np.intp)
        before = np.arange(count)
        exchange = np.full(count, -1)
        last_of_stream: dict[tuple[int, str], int] = {}
        for index, ((rank, position), node) in enumerate(zip(nodes, flat, strict=True)):
            needs[:, index] = rank
            if node is None:
                continue
            before[index] = self.node_at[rank][position - 1] if position else rank
            own = [self.node_at[rank][need] for need in node.needs]
            own.append(last_of_stream.get((rank, node.stream), rank))
            needs[: len(own), index] = own
            last_of_stream[rank, node.stream] = index
            if node.role == "collective" and node.exchange:
                exchange[index] = exchanges[node.exchange]
        rows = [index for index, node in enumerate(flat) if node and node.role in ("compute", "copy")]
        comm = [index for index, node in enumerate(flat) if node and node.role not in ("compute", "copy")]
        kernels = max(len(node.kernels) for node in flat if node)
        units = np.zeros((len(rows), kernels))
        name = np.zeros((len(rows), kernels), np.intp)
        present = np.zeros((len(rows), kernels), np.bool_)
        for row, index in enumerate(rows):
            node = flat[index]
            assert node is not None
            for column, (text, share) in enumerate(node.kernels):
                units[row, column] = share * node.body
                name[row, column] = names.id(text)
                present[row, column] = True
        comm_name = np.array(
            [names.id(node.kernels[0][0]) for index in comm if (node := flat[index])], np.intp
        )
        groups: list[tuple[str, str]] = []
        group_of_exchange = np.zeros(len(exchanges), np.intp)
        for key, number in exchanges.items():
            group = key[0], key[0].partition(":")[0]
            if group not in groups:
                groups.append(group)
            group_of_exchange[number] = groups.index(group)
        launches = np.array([len(node.kernels) if node else 0 for node in flat])
        order, rank_ends, stream, operation = self._order(rows, comm, kernels)
        nodes_of = self._nodes_of()
        spans = self._spans()
        text_of = np.array(
            [names.texts[name_] for name_ in name.ravel()] + [names.texts[n] for n in comm_name]
        )
        row_of_node = np.full(count, -1)
        row_of_node[rows] = np.arange(len(rows))
        return Plan(
            topology=self.topology,
            phases=phases.texts,
            names=names.texts,
            levels=self.levels.levels,
            rank=np.array([rank for rank, _ in nodes]),
            phase=phase,
            microbatch=np.array([node.microbatch if node else -1 for node in flat]),
            layer=np.array([node.layer if node else -1 for node in flat]),
            exchange=exchange,
            groups=groups,
            group_of_exchange=group_of_exchange,
            body=np.array([node.body if node else 0.0 for node in flat]),
            before=before,
            needs=needs,
            queue=self._queue(nodes, launches, nodes_of),
            nodes_of=nodes_of,
            position=np.array([position for _, position in nodes]),
            comm=np.array(comm, np.intp),
            comm_name=comm_name,
            row_node=np.array(rows, np.intp),
            row_of_node=row_of_node,
            units=units,
            present=present,
            name=name,
            order=order,
            rank_ends=rank_ends,
            stream=stream,
            operation=operation,
            kilobytes=np.where(text_of[order] == COPY_TO_DEVICE, _COPY_KILOBYTES, 0).astype(np.uint32),
            launches=launches,
            spans=spans[0],
            span_first=spans[1],
            span_last=spans[2],
            span_ends=spans[3],
            span_texts=spans[4],
            span_after=spans[5],
            span_within=spans[6],
            span_apart=np.concatenate(
                [
                    [False] * schedule.batches + [one.apart for one in schedule.marked]
                    for schedule in self.schedules
                ]
            ),
        )

    def _order(
        self, rows: list[int], comm: list[int], kernels: int
    ) -> tuple[Ints, Ints, NDArray[np.uint32], NDArray[np.uint8]]:
        row_of = {index: row for row, index in enumerate(rows)}
        comm_of = {index: place for place, index in enumerate(comm)}
        order: list[int] = []
        streams: list[int] = []
        operations: list[int] = []
        ends: list[int] = []
        for rank, schedule in enumerate(self.schedules):
            for position, node in enumerate(schedule.nodes):
                index = self.node_at[rank][position]
                if index in row_of:
                    order += [row_of[index] * kernels + column for column in range(len(node.kernels))]
                else:
                    order.append(len(rows) * kernels + comm_of[index])
                streams += [STREAMS[node.stream]] * len(node.kernels)
                operations += [_operation(text) for text, _ in node.kernels]
            ends.append(len(order))
        return (
            np.array(order, np.intp), np.array(ends, np.intp), np.array(streams, np.uint32),
            np.array(operations, np.uint8),
        )  # fmt: skip

    def _nodes_of(self) -> Ints:
        longest = max(len(schedule.nodes) for schedule in self.schedules)
        found = np.empty((self.topology.ranks, longest), np.intp)
        for rank, own in enumerate(self.node_at):
            found[rank] = [*own, *[rank] * (longest - len(own))]
        return found

    def _queue(self, nodes: list[tuple[int, int]], launches: Ints, nodes_of: Ints) -> Ints:
        """The queue holds a share of the step's launches: the simulated ones stand for more."""
        queue = np.array([rank for rank, _ in nodes], np.intp)
        for rank, schedule in enumerate(self.schedules):
            own = nodes_of[rank][: len(schedule.nodes)]
            until = np.cumsum(launches[own])
            room = max(int(launches[own].max()), round(self.host.queue * int(until[-1]) / self.host.launches))
            # The launch whose end makes room for the last one of each node.
            blocking = np.searchsorted(until, until - room, side="left")
            late = until > room
            queue[own[late]] = own[np.minimum(blocking[late], np.flatnonzero(late) - 1)]
        return queue

    def _spans(self) -> tuple[NDArray[np.void], Ints, Ints, Ints, tuple[str, ...], Ints, Ints]:
        texts = _Table()
        after: list[tuple[int, ...]] = []
        within: list[int] = []
        first: list[int] = []
        last: list[tuple[int, ...]] = []
        ends: list[int] = []
        values: list[tuple[int, int, int, int, int]] = []
        for rank, schedule in enumerate(self.schedules):
            for batch in range(schedule.batches):
                first.append(rank)
                last.append((rank,))
                values.append((texts.id("data") + 1, 0, wire.Kind.HOST, wire.Source.HOST, batch))
                after.append(())
                within.append(-1)
            begin = len(values)
            for marked in schedule.marked:
                after.append(tuple(self.node_at[rank][node] for node in marked.after))
                outer = [
                    begin + number
                    for number, other in enumerate(schedule.marked)
                    if not (marked.apart or other.apart)
                    and not other.after
                    and other.first < marked.first
                    and marked.last <= other.last
                ]
                within.append(outer[0] if outer else -1)
                first.append(self.node_at[rank][marked.first])
                last.append(tuple(self.node_at[rank][node] for node in (marked.last, *marked.until)))
                group = texts.id(marked.group) + 1 if marked.group else 0
                values.append(
                    (
                        texts.id(marked.phase) + 1,
                        group,
                        marked.kind,
                        wire.Source.EVENT,
                        max(marked.microbatch, 0),
                    )
                )
            ends.append(len(values))
        spans = np.zeros(len(values), SPAN_DTYPE)
        for field, column in zip(
            ("phase_id", "group_id", "kind", "source", "microbatch"), zip(*values, strict=True), strict=True
        ):
            spans[field] = column
        return (
            spans, np.array(first, np.intp), _padded(last), np.array(ends, np.intp), texts.texts,
            _padded(after), np.array(within, np.intp),
        )  # fmt: skip


def _padded(rows: Sequence[tuple[int, ...]]) -> Ints:
    """As long as the longest, by repeating the first; of nothing -1."""
    width = max(1, *map(len, rows))
    return np.array([row + (row[:1] or (-1,)) * (width - len(row)) for row in rows], np.intp)


class _Table:
    """Texts by number."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def id(self, text: str) -> int:
        return self._known.setdefault(text, len(self._known))

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(self._known)


def _operation(name: str) -> int:
    if not is_memory_operation(name):
        return wire.Operation.KERNEL
    return wire.Operation.MEMSET if name.lower().startswith("memset") else wire.Operation.MEMCPY
