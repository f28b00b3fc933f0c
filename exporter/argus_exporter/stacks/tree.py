"""Stacks that a sampler inside the training process sends: a tree of frames, and samples at its nodes."""

from __future__ import annotations

from collections import Counter
from typing import Final

from argus_core import wire
from argus_exporter.names import NameTable
from argus_exporter.stacks.folded import DEPTH_LIMIT, STACKS_LIMIT, Stack, thread_name

_NODES_LIMIT: Final = 65_536
_FRAMES_LIMIT: Final = 65_536
"""Frames kept of a window, of all its stacks together: each goes into the trace ring with its text."""


class StackTree:
    """Call stacks of one rank as they come over the wire, until the supervisor takes them.

    A sampler that reconnects sends its nodes again: a node id means what was said of it last.
    """

    def __init__(self) -> None:
        self._nodes: dict[int, tuple[int, str]] = {}
        self._pending: Counter[Stack] = Counter()
        self._pending_frames = 0
        self._first_ns = 0
        self._last_ns = 0

    def node(self, record: wire.StackNode, names: NameTable) -> None:
        """One node: a frame below its caller.

        Raises:
            WireError: an unknown name, node 0, or more nodes than any program has.
        """
        if record.node_id == 0 or (record.node_id not in self._nodes and len(self._nodes) >= _NODES_LIMIT):
            raise wire.WireError(
                "value", f"stack node {record.node_id}: 0, or more than {_NODES_LIMIT} nodes"
            )
        self._nodes[record.node_id] = record.parent_id, names.text(record.frame_id)

    def sample(self, record: wire.StackSample, names: NameTable) -> bool:
        """Samples of one stack. False when they are beyond the limit and were not kept.

        Raises:
            WireError: a node or name that was never sent.
        """
        stack = Stack(thread_name(names.text(record.thread_id)), self._frames(record.node_id))
        if stack not in self._pending:
            frames = self._pending_frames + len(stack.frames)
            if len(self._pending) >= STACKS_LIMIT or frames > _FRAMES_LIMIT:
                return False
            self._pending_frames = frames
        self._pending[stack] += record.count
        self._first_ns = min(self._first_ns or record.time_ns, record.time_ns)
        self._last_ns = max(self._last_ns, record.time_ns)
        return True

    def take(self) -> tuple[int, int, Counter[Stack]]:
        """Begin and end (Unix nanoseconds) and samples since the last call."""
        taken = self._first_ns, self._last_ns, self._pending
        self._pending, self._pending_frames, self._first_ns, self._last_ns = Counter(), 0, 0, 0
        return taken

    def _frames(self, node_id: int) -> tuple[str, ...]:
        """Outermost first. A tree with a cycle ends at the depth limit."""
        frames: list[str] = []
        while node_id and len(frames) < DEPTH_LIMIT:
            node = self._nodes.get(node_id)
            if node is None:
                raise wire.WireError("value", f"a stack uses node {node_id}, which was never sent")
            node_id, frame = node
            frames.append(frame)
        return tuple(reversed(frames))
