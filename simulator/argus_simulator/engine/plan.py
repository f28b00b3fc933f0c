"""The schedules of all ranks as arrays: everything about a step that is the same in every step.

Nodes are sorted by level: a level holds at most one node of each rank, and everything that its nodes wait for
stands in earlier levels. The first nodes, one a rank, stand for the start of the step. The kernels of compute
nodes and copies form a matrix, one row a node (padded), because a row is what runs without interruption.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_simulator.errors import ArgusSimulatorError
from argus_simulator.topology import Topology

Ints = NDArray[np.intp]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

SPAN_DTYPE: Final = np.dtype(
    [
        ("start_ns", "<u8"), ("duration_ns", "<u8"), ("step", "<u8"), ("phase_id", "<u4"),
        ("group_id", "<u4"), ("kind", "u1"), ("source", "u1"), ("microbatch", "<u2"),
        ("nested_seconds", "<f4"),
    ]
)  # fmt: skip
"""`wire.Span`, field by field."""


class Deadlock(ArgusSimulatorError):
    """Some rank waits for a communication that another member never enters."""


@dataclass(frozen=True)
class Level:
    """Nodes `begin` to `end`. From `receives` on they receive, from `collectives` on they are collectives."""

    begin: int
    end: int
    receives: int
    collectives: int
    sends: Ints
    """The node that sends, for each that receives."""
    starts: Ints
    """Where each exchange begins, counted from `collectives`."""
    sizes: Ints


@dataclass(eq=False)
class Plan:
    """See the module. N nodes, C rows of K kernels, R ranks.

    Attributes:
        rank, phase, microbatch, exchange: of each node, shape (N,); `exchange` -1 where there is none.
        body: units of each node, shape (N,).
        before: node launched before, shape (N,); of the first R nodes themselves.
        needs: nodes that must have ended, shape (any, N); padded with the rank's first node.
        queue: node whose end makes room in the launch queue, shape (N,).
        nodes_of: nodes of each rank in order of launch, shape (R, most), padded with the rank's first node.
        row_node: node of each row, shape (C,).
        units, present, name: of each kernel of the rows, shape (C, K).
        order: of all kernels of the job by rank and launch, as positions in rows.ravel() followed by the
            communications (`comm`), shape (all,).
        rank_ends: where the kernels of each rank end in `order`, shape (R,).
    """

    topology: Topology
    phases: tuple[str, ...]
    names: tuple[str, ...]
    levels: list[Level]
    rank: Ints
    phase: Ints
    microbatch: Ints
    layer: Ints
    exchange: Ints
    groups: list[tuple[str, str]]
    group_of_exchange: Ints
    body: Floats
    before: Ints
    needs: Ints
    queue: Ints
    nodes_of: Ints
    position: Ints
    comm: Ints
    comm_name: Ints
    row_node: Ints
    row_of_node: Ints
    units: Floats
    present: Bools
    name: Ints
    order: Ints
    rank_ends: Ints
    stream: NDArray[np.uint32]
    operation: NDArray[np.uint8]
    kilobytes: NDArray[np.uint32]
    launches: Ints
    spans: NDArray[np.void]
    span_first: Ints
    span_last: Ints
    """Nodes with whose ends a span ends, shape (spans, width), padded with the first."""
    span_ends: Ints
    span_texts: tuple[str, ...]
    span_after: Ints
    """Nodes after whose ends a wait begins, shape (spans, width), padded with the first; -1: no wait."""
    span_within: Ints
    """The span that a span lies in; -1: none."""
    span_apart: Bools
    """Spans on a stream beside that of the computation."""
