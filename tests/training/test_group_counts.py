"""What torch counts of a group's collectives, and which of its counts are not taken for that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from argus_training.identity import Layout
from argus_training.torch_hooks.group_counts import GroupCounts

PIPELINE = Layout({"tp": 2, "dp": 2, "pp": 2})


class Group:
    """One of torch's, by its name."""

    def __init__(self, name: str, number: int) -> None:
        self.group_name = name
        self._number = number

    def _get_sequence_number_for_group(self) -> int:
        return self._number


def taken(backend: str, layout: Layout, *, counts_batches: bool, **numbers: int) -> dict[str, int]:
    """What the page is told of groups; in `world` two transfers were seen, which came in one batch."""
    told: dict[str, int] = {}
    groups = {Group(name, number): (backend, None) for name, number in numbers.items()}
    distributed: Any = SimpleNamespace(_world=SimpleNamespace(pg_map=groups))
    recorder: Any = SimpleNamespace(counted=told.__setitem__)
    counts = GroupCounts(
        recorder,
        distributed,
        lambda group: str(group.group_name),
        lambda: layout,
        counts_batches=counts_batches,
    )
    counts.transfers["world"], counts.batches["world"] = 2, 1
    assert counts.take() == {name: name for name in told}
    return told


@pytest.mark.parametrize(
    ("backend", "counts_batches", "collectives"), [("gloo", False, 8), ("nccl", True, 9), ("nccl", False, 10)]
)
def test_transfers_are_no_collectives(backend: str, counts_batches: bool, collectives: int) -> None:
    """gloo counts each, NCCL of an older torch each batch, and NCCL of today none."""
    told = taken(backend, Layout({"dp": 2}), counts_batches=counts_batches, world=10, dp=7)
    assert told == {"world": collectives, "dp": 7}


def test_what_a_pipeline_sends_is_not_seen_so_where_it_counts_the_group_is_left_out() -> None:
    """Not those of one stage, in which nothing is sent from stage to stage."""
    groups = {"world": 10, "pp": 90, "dp": 7, "tp": 30}
    assert taken("nccl", PIPELINE, counts_batches=True, **groups) == {"dp": 7, "tp": 30}
    assert taken("nccl", PIPELINE, counts_batches=False, **groups) == groups
