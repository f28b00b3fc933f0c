"""Rank and layout from what a job makes: process groups, device meshes, Megatron's parallel state."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus_training import rank_layout
from argus_training.identity import Layout, Place
from argus_training.rank_layout import RankLayout, from_megatron, from_mesh
from argus_training.torch_hooks.collectives import group_name


def torch_with(rank: int | None, world: int = 8) -> Any:
    """What is asked of torch."""
    distributed = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: rank is not None,
        get_rank=lambda: rank,
        get_world_size=lambda: world,
    )
    return SimpleNamespace(distributed=distributed, cuda=SimpleNamespace(is_initialized=lambda: False))


def at(rank: int | None, environ: dict[str, str], parallel: str = "") -> RankLayout:
    return RankLayout(torch_with(rank), environ, parallel, lambda _: None)


def test_launcher_decides_where_there_is_one() -> None:
    """Also before and after a process group is made."""
    assert at(5, {"RANK": "3", "WORLD_SIZE": "8"}).place() == Place("torchrun", 3, -1, 8)


def test_process_group_decides_without_a_launcher() -> None:
    """A script that brings its own way of starting."""
    assert at(5, {}).place() == Place("torch.distributed", 5, -1, 8)


def test_plain_script_is_the_only_rank() -> None:
    """Neither launcher nor process group."""
    assert at(None, {}).place() == Place("none", 0, 0, 1)
    assert not at(None, {}).launched


def test_child_goes_by_its_process_group_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """mp.spawn under a launcher: the environment is the parent's. Without a group it has no rank."""
    monkeypatch.setattr(rank_layout, "_is_child", lambda: True)
    inherited = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
    assert at(5, inherited).place() == Place("torch.distributed", 5, -1, 8)
    assert at(None, inherited).place() is None
    assert not at(5, inherited).launched


def test_wrong_parallel_sizes_are_said_and_left() -> None:
    """A sentence, and the job counts as data-parallel."""
    said: list[str] = []
    place = RankLayout(torch_with(None), {"RANK": "0", "WORLD_SIZE": "8"}, "tp=3", said.append)
    assert place.layout() == Layout()
    assert "ARGUS_PARALLEL" in said[0]


@pytest.mark.parametrize(
    ("names", "shape", "expected"),
    [
        (("dp", "tp"), (4, 2), Layout({"tp": 2, "pp": 1, "dp": 4}, ("dp", "tp", "pp"))),
        (
            ("pp", "dp_replicate", "dp_shard", "cp", "tp"),
            (2, 1, 2, 1, 2),
            Layout({"tp": 2, "pp": 2, "dp": 2}, ("pp", "dp", "tp")),
        ),
        (("dp", "ep"), (2, 4), Layout({"tp": 1, "pp": 1, "dp": 8, "ep": 4}, ("dp", "tp", "pp"))),
        (("ep", "dp"), (2, 4), Layout({"tp": 1, "pp": 1, "dp": 8}, ("dp", "tp", "pp"))),
        (("dp", "tp", "cp"), (2, 2, 2), Layout()),
    ],
    ids=["fsdp and tp", "torchtitan", "experts", "experts outermost", "replicas that are no neighbours"],
)
def test_mesh_dimensions_become_coordinates(
    names: tuple[str, ...], shape: tuple[int, ...], expected: Layout
) -> None:
    """tp and pp as they are called; all kinds of replicas are dp."""
    assert from_mesh(names, shape) == expected


def test_largest_mesh_is_the_layout_and_the_user_knows_better() -> None:
    """A submesh says nothing about the job; ARGUS_PARALLEL wins over a mesh."""
    environ = {"RANK": "5", "WORLD_SIZE": "8"}
    job = at(None, environ)
    assert not job.note_mesh(("tp",), (2,))
    assert job.note_mesh(("dp", "tp"), (4, 2))
    assert job.layout().coordinates(5) == {"dp": 2, "tp": 1, "pp": 0}
    told = at(None, environ, "tp=4")
    assert not told.note_mesh(("dp", "tp"), (4, 2))
    assert told.layout().sizes["tp"] == 4


def test_groups_tell_where_no_mesh_does() -> None:
    """Described process groups come after a mesh, and only those of all ranks count."""
    job = at(None, {"RANK": "5", "WORLD_SIZE": "8"})
    assert not job.note_groups(("dp", "tp"), (2, 2))
    assert job.note_groups(("pp", "dp", "tp"), (2, 2, 2))
    assert job.layout().coordinates(5) == {"pp": 1, "dp": 0, "tp": 1}
    assert job.note_mesh(("dp", "tp"), (4, 2))
    assert not job.note_groups(("pp", "dp", "tp"), (4, 1, 2))
    assert job.layout().coordinates(5) == {"dp": 2, "tp": 1, "pp": 0}


class State:
    """The part of `megatron.core.parallel_state` that is asked, for a layout in a given order."""

    def __init__(self, rank: int, layout: Layout, cp: int = 1, ep: int = 1) -> None:
        where, sizes = layout.coordinates(rank), layout.sizes
        values = {
            "tensor_model_parallel": (where["tp"], sizes["tp"]),
            "pipeline_model_parallel": (where["pp"], sizes["pp"]),
            "context_parallel": (where["dp"] % cp, cp),
            "data_parallel": (where["dp"] // cp, sizes["dp"] // cp),
            "expert_model_parallel": (where["dp"] % ep, ep),
        }
        for name, (index, size) in values.items():
            setattr(self, f"get_{name}_rank", lambda index=index: index)
            setattr(self, f"get_{name}_world_size", lambda size=size: size)
        self.model_parallel_is_initialized = lambda: True


@given(st.data())
def test_megatron_layout_is_found_from_one_rank(data: st.DataObject) -> None:
    """In either order of ranks the own coordinates are Megatron's."""
    sizes = {name: data.draw(st.sampled_from((1, 2, 4))) for name in ("tp", "pp", "dp")}
    order = data.draw(st.sampled_from((("pp", "dp", "tp"), ("dp", "pp", "tp"))))
    world = sizes["tp"] * sizes["pp"] * sizes["dp"]
    rank = data.draw(st.integers(0, world - 1))
    cp = data.draw(st.sampled_from([size for size in (1, 2, 4) if sizes["dp"] % size == 0]))
    layout = Layout(sizes, order)
    found = from_megatron(State(rank, layout, cp=cp), rank)
    split = Layout({**sizes, "cp": cp} if cp > 1 else sizes, order)
    assert found.coordinates(rank) == split.coordinates(rank)


def test_megatron_is_asked_once_it_is_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its groups win over a mesh."""
    layout = Layout({"tp": 2, "pp": 2, "dp": 2})
    job = at(None, {"RANK": "6", "WORLD_SIZE": "8"})
    job.note_mesh(("dp", "tp"), (4, 2))
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", State(6, layout, ep=2))
    assert job.layout() == Layout({"tp": 2, "pp": 2, "dp": 2, "ep": 2})


def test_groups_are_named_by_the_layout() -> None:
    """A group along one dimension has its name; any other is named by its ranks."""
    layout = from_mesh(("dp", "tp"), (4, 2))
    assert group_name([0, 1], layout, 8) == "tp"
    assert group_name([1, 3, 5, 7], layout, 8) == "dp"
    assert group_name([1, 3], layout, 8) == "ranks:1-3.2"
    assert group_name(list(range(8)), layout, 8) == "world"
    assert group_name([0, 4], Layout(), 8) == "ranks:0-4.2"


def test_groups_within_the_data_parallel_ranks_are_named_by_their_members() -> None:
    """16 ranks, tp 2, dp 8 in blocks of ep 4 and of cp 2."""
    layout = Layout({"tp": 2, "pp": 1, "dp": 8, "ep": 4, "cp": 2})
    assert group_name([0, 2, 4, 6], layout, 16) == "ep"
    assert group_name([9, 11, 13, 15], layout, 16) == "ep"
    assert group_name([0, 8], layout, 16) == "edp"
    assert group_name([0, 2], layout, 16) == "cp"
    assert group_name([0, 4, 8, 12], layout, 16) == "dp", "Megatron's, which has no cp in it"
    assert group_name([0, 4, 8], layout, 16) == "ranks:0-8.3"
    assert group_name([2, 4], layout, 16) == "ranks:2-4.2"


def test_groups_of_other_ranks_have_other_names() -> None:
    """They are counted together by their name, though first, last and number are the same."""
    groups = ([0, 1, 3], [0, 2, 3], [0, 2, 4, 8], [0, 1, 2, 8])
    assert len({group_name(ranks, Layout(), 16) for ranks in groups}) == len(groups)


def test_the_description_decides_between_groups_of_the_same_ranks() -> None:
    """Where ep and cp are of one size their groups have the same members."""
    layout = Layout({"tp": 1, "pp": 1, "dp": 8, "ep": 2, "cp": 2})
    assert group_name([0, 1], layout, 8, "EXPERT_MODEL_PARALLEL_GROUP") == "ep"
    assert group_name([0, 1], layout, 8, "CONTEXT_PARALLEL_GROUP") == "cp"
    assert group_name([0, 2, 4, 6], layout, 8, "EXPERT_DATA_PARALLEL_GROUP") == "edp"
    assert group_name([0, 2, 4, 6], layout, 8) == "dp"


def test_megatron_tells_context_parallel() -> None:
    """Its index splits the data-parallel one."""
    layout = Layout({"tp": 2, "pp": 1, "dp": 4})
    found = from_megatron(State(5, layout, cp=2), 5)
    assert found.sizes == {"tp": 2, "pp": 1, "dp": 4, "cp": 2}
    assert found.coordinates(5) == {"tp": 1, "dp": 2, "pp": 0, "cp": 0}
