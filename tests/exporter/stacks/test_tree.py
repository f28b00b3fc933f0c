"""Stacks from inside a rank: a tree on the wire becomes stacks, and no record can make it grow or loop."""

from __future__ import annotations

import pytest

from argus_core import wire
from argus_exporter.names import NameTable, Texts
from argus_exporter.stacks.folded import DEPTH_LIMIT, STACKS_LIMIT, Stack
from argus_exporter.stacks.tree import StackTree


@pytest.fixture
def names() -> NameTable:
    table = NameTable(Texts())
    for id_, text in enumerate(("MainThread", "outer (m)", "inner (m)"), start=1):
        table.bind(wire.Name(id_, text.encode()))
    return table


def test_samples_of_a_node_are_a_stack(names: NameTable) -> None:
    """Frames from the root to the node; taking them begins anew."""
    tree = StackTree()
    tree.node(wire.StackNode(1, 0, 2), names)
    tree.node(wire.StackNode(2, 1, 3), names)
    assert tree.sample(wire.StackSample(50, 1, 2, 3), names)
    assert tree.sample(wire.StackSample(90, 1, 2, 4), names)
    assert tree.take() == (50, 90, {Stack("MainThread", ("outer (m)", "inner (m)")): 7})
    assert tree.take() == (0, 0, {})


def test_a_sampler_that_reconnects_may_number_anew(names: NameTable) -> None:
    """What was said last of a node holds."""
    tree = StackTree()
    tree.node(wire.StackNode(1, 0, 2), names)
    tree.node(wire.StackNode(1, 0, 3), names)
    tree.sample(wire.StackSample(1, 1, 1, 1), names)
    assert list(tree.take()[2]) == [Stack("MainThread", ("inner (m)",))]


def test_a_cycle_ends_at_the_depth_limit(names: NameTable) -> None:
    """Two nodes that are each other's callers."""
    tree = StackTree()
    tree.node(wire.StackNode(1, 2, 2), names)
    tree.node(wire.StackNode(2, 1, 3), names)
    tree.sample(wire.StackSample(1, 1, 1, 1), names)
    (stack,) = tree.take()[2]
    assert len(stack.frames) == DEPTH_LIMIT


def test_unknown_nodes_and_names_end_the_connection(names: NameTable) -> None:
    """As every record that makes no sense."""
    tree = StackTree()
    with pytest.raises(wire.WireError, match="node 9, which was never sent"):
        tree.sample(wire.StackSample(1, 1, 9, 1), names)
    with pytest.raises(wire.WireError, match="name id 77"):
        tree.node(wire.StackNode(1, 0, 77), names)
    with pytest.raises(wire.WireError, match="node 0"):
        tree.node(wire.StackNode(0, 0, 2), names)


def test_stacks_between_two_takes_are_bounded(names: NameTable) -> None:
    """What is beyond is refused, and so can be counted."""
    tree = StackTree()
    for node in range(1, STACKS_LIMIT + 2):
        tree.node(wire.StackNode(node, 0, 2), names)
        names.bind(wire.Name(10 + node, f"t{'abcdefghij'[node % 10]}{chr(0x4E00 + node)}".encode()))
    kept = [
        tree.sample(wire.StackSample(1, 10 + node, node, 1), names) for node in range(1, STACKS_LIMIT + 2)
    ]
    assert kept == [True] * STACKS_LIMIT + [False]


def test_frames_between_two_takes_are_bounded(names: NameTable) -> None:
    """Of all stacks together, as each is written with the text of its frames; then it begins anew."""
    tree = StackTree()
    for node in range(1, DEPTH_LIMIT):
        tree.node(wire.StackNode(node, node - 1, 2), names)
    for leaf in range(1000):
        names.bind(wire.Name(10 + leaf, f"{chr(0x4E00 + leaf)} (m)".encode()))
        tree.node(wire.StackNode(1000 + leaf, DEPTH_LIMIT - 1, 10 + leaf), names)

    def frames_kept() -> int:
        for leaf in range(1000):
            tree.sample(wire.StackSample(1, 1, 1000 + leaf, 1), names)
        return sum(len(stack.frames) for stack in tree.take()[2])

    assert frames_kept() == frames_kept() == 65_536 // DEPTH_LIMIT * DEPTH_LIMIT
