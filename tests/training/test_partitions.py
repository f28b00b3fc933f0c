"""The layout of a job from the process groups that it makes and describes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus_training.identity import Layout
from argus_training.partitions import Dimensions, Partitions, lines


def told(groups: dict[str, set[tuple[int, ...]]], world_size: int) -> list[Dimensions]:
    """What each group told, in the order in which the groups are made."""
    partitions = Partitions()
    made = [(words, ranks) for words, them in groups.items() for ranks in sorted(them)]
    found = [partitions.add(words, ranks, world_size) for words, ranks in made]
    return [dimensions for dimensions in found if dimensions is not None]


@given(st.data())
def test_every_regular_layout_is_found(data: st.DataObject) -> None:
    """From its own groups, in any order of dimensions, also where nobody describes the replicas."""
    sizes = {name: data.draw(st.sampled_from((1, 2, 3, 4))) for name in ("tp", "pp", "dp")}
    layout = Layout(sizes, tuple(data.draw(st.permutations(("tp", "pp", "dp")))))
    world = sizes["tp"] * sizes["pp"] * sizes["dp"]
    roles = data.draw(st.permutations(data.draw(st.sampled_from((("tp", "pp"), ("tp", "pp", "dp"))))))
    names, shape = told({role: lines(layout, role, world) for role in roles}, world)[-1]
    found = Layout(dict(zip(names, shape, strict=True)), names)
    assert all(found.coordinates(rank) == layout.coordinates(rank) for rank in range(world))


@pytest.mark.parametrize("words", ["tensor_model_parallel", "TENSOR_MODEL_PARALLEL_GROUP", "tp", "tp-3"])
def test_descriptions_name_the_dimension(words: str) -> None:
    """As frameworks and people write it."""
    layout = Layout({"tp": 2, "pp": 1, "dp": 2})
    assert told({words: lines(layout, "tp", 4)}, 4) == [(("pp", "dp", "tp"), (1, 2, 2))]


@pytest.mark.parametrize(
    "words", ["tensor_and_data", "EXPERT_DATA_PARALLEL_GROUP", "model_parallel", "mesh_x"]
)
def test_descriptions_of_several_dimensions_or_none_say_nothing(words: str) -> None:
    """Better no layout than a wrong one."""
    assert told({words: {(0, 1), (2, 3)}}, 4) == []


@pytest.mark.parametrize(
    "groups",
    [
        {"tp": {(0, 1), (2, 3), (4, 5)}},
        {"tp": {(0, 1), (1, 2), (2, 3), (0, 3), (4, 5), (6, 7)}},
        {"tp": {(0, 1, 2), (3, 4, 5), (6, 7)}},
        {"tp": {(0, 1), (2, 3), (4, 6), (5, 7)}},
        {"tp": {(0, 3), (1, 2), (4, 7), (5, 6)}},
    ],
    ids=["not all ranks", "overlapping", "uneven", "irregular strides", "no constant stride"],
)
def test_groups_that_are_no_regular_partition_give_no_layout(groups: dict[str, set[tuple[int, ...]]]) -> None:
    """Sizes and strides must fit."""
    assert told(groups, 8) == []


def test_partitions_that_contradict_each_other_give_no_layout() -> None:
    """Two dimensions along the same ranks."""
    pairs = {(0, 1), (2, 3), (4, 5), (6, 7)}
    assert told({"tp": pairs, "pp": pairs}, 8) == [(("pp", "dp", "tp"), (1, 4, 2))]  # until pp was complete


def test_replicas_with_and_without_context_parallelism() -> None:
    """As Megatron makes them: the partition that fits the grid is meant."""
    layout = Layout({"tp": 2, "pp": 1, "dp": 4})
    without = {(0, 4), (1, 5), (2, 6), (3, 7)}
    groups = {"DATA_PARALLEL_GROUP": without, "DATA_PARALLEL_GROUP_WITH_CP": lines(layout, "dp", 8)}
    assert told({"tp": lines(layout, "tp", 8), **groups}, 8)[-1] == (("pp", "dp", "tp"), (1, 4, 2))


def test_experts_are_blocks_of_replicas() -> None:
    """ep is kept where its groups are consecutive replicas, else left out."""
    layout = Layout({"tp": 2, "pp": 1, "dp": 4})
    both = {role: lines(layout, role, 8) for role in ("tp", "dp")}
    blocks = {(0, 2), (1, 3), (4, 6), (5, 7)}
    assert told({**both, "ep": blocks}, 8)[-1] == (("pp", "dp", "ep", "tp"), (1, 2, 2, 2))
    apart = {(0, 4), (1, 5), (2, 6), (3, 7)}
    assert told({**both, "ep": apart}, 8)[-1] == (("pp", "dp", "tp"), (1, 4, 2))


def test_descriptions_without_end_are_bounded() -> None:
    """A job that describes each group in words of its own."""
    partitions = Partitions()
    for index in range(1000):
        partitions.add(f"tp {chr(97 + index % 26)}{chr(97 + index // 26)}", (0, 1), 4)
    assert len(partitions._by_words) == 32
