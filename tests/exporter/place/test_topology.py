"""Comparison groups: with whom a rank's phases are compared (ARGUS table 3)."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from argus_core import wire
from argus_exporter.place.topology import Group, Identity, RoutingTable, group_along, suspects_along

FULL = Identity(
    "job",
    rank=0,
    world_size=64,
    coordinates={"dp": 5, "tp": 1, "pp": 2, "ep": 1},
    sizes={"dp": 8, "tp": 2, "pp": 4, "ep": 4},
)
PLAIN = Identity("job", rank=3, world_size=16, coordinates={"dp": 3}, sizes={"dp": 16})


@pytest.mark.parametrize(
    ("dimension", "group"),
    [
        ("dp", Group("dp:pp2.tp1", 8)),
        ("tp", Group("tp:dp5.pp2", 2)),
        ("pp", Group("pp:dp5.tp1", 4)),
        ("ep", Group("ep:pp2.tp1.block1", 4)),
        ("edp", Group("edp:pp2.tp1.ep1", 2)),
        ("world", Group("world", 64)),
    ],
)
def test_a_group_is_named_by_what_its_members_share(dimension: str, group: Group):
    """The name holds every coordinate but the one that varies; the size is that dimension's."""
    assert group_along(FULL, dimension) == group


def test_context_parallel_ranks_are_neighbours_within_dp():
    """Of a HELLO that tells them; one that does not (before they were told) has none."""
    told = wire.hello(
        pid=1, rank=11, world_size=12, training_job="job", monotonic_ns=1, realtime_ns=1,
        coordinates={"dp": 5, "tp": 1, "cp": 1}, sizes={"dp": 6, "tp": 2, "cp": 2},
    )  # fmt: skip
    identity = Identity.from_hello(told)
    assert identity.info_labels["cp"] == "1"
    assert RoutingTable(identity).group_of_phase("all_to_all", "cp", "comm") == Group("cp:tp1.block2", 2)
    silent = Identity.from_hello(dataclasses.replace(told, cp=0, cp_size=0))
    assert "cp" not in silent.coordinates
    assert group_along(silent, "cp") == Group("dp:tp1", 6)


def test_a_job_without_other_dimensions_has_plain_groups():
    """Pure data parallelism needs no coordinates in the name."""
    assert group_along(PLAIN, "dp") == Group("dp", 16)
    assert group_along(PLAIN, "tp") == Group("dp", 16)


@pytest.mark.parametrize("phase", ["embedding-grads-all-reduce", "all-grads-sync", "all_reduce"])
def test_a_collective_of_an_unknown_dimension_is_compared_with_nobody(phase: str):
    """The embedding's all-reduce joins two stages only: among replicas, whoever waits least is not late."""
    assert RoutingTable(FULL).group_of_phase(phase, "", "comm") == Group("unknown", 0)
    assert RoutingTable(FULL).group_of_phase(phase, "", "compute") == Group("dp:pp2.tp1", 8)


def test_a_collective_of_any_name_runs_along_the_only_dimension():
    """Also where the others are there with one rank each, or only tensor parallelism is."""
    tensor = Identity("job", 1, coordinates={"dp": 0, "tp": 1}, sizes={"dp": 1, "tp": 4})
    assert RoutingTable(PLAIN).group_of_phase("my-sync", "", "comm") == Group("dp", 16)
    assert RoutingTable(tensor).group_of_phase("my-sync", "", "comm") == Group("tp:dp0", 4)


def test_who_routes_a_collective_knows_its_dimension():
    """Configuration and producer are believed."""
    routed = RoutingTable(FULL, {"my-*": "dp"})
    assert routed.group_of_phase("my-sync", "", "comm") == Group("dp:pp2.tp1", 8)
    assert RoutingTable(FULL).group_of_phase("my-sync", "tp", "comm") == Group("tp:dp5.pp2", 2)


@pytest.mark.parametrize(
    ("phase", "named", "group"),
    [
        ("pp-forward-recv", "", Group("stage:pp2.tp1", 8)),
        ("send_recv", "pp", Group("stage:pp2.tp1", 8)),
        ("world-all-reduce", "", Group("stage:pp2", 16)),
        ("all_reduce", "world", Group("stage:pp2", 16)),
    ],
)
def test_stages_are_never_compared_with_one_another(phase: str, named: str, group: Group):
    """1F1B makes them wait differently: what passes between them is compared with that of the same stage."""
    assert RoutingTable(FULL).group_of_phase(phase, named) == group


def test_a_collective_is_counted_by_all_who_take_part():
    """A stall shows who has not entered, whatever the stage."""
    assert RoutingTable(FULL).process_group("all_reduce", "world") == Group("world", 64)
    assert RoutingTable(FULL).process_group("pp-send") == Group("pp:dp5.tp1", 4)
    assert RoutingTable(FULL).process_group("all_reduce", "mine") == Group("mine", 0)


def test_without_stages_the_whole_job_is_one_group():
    """Nothing to tell apart."""
    assert RoutingTable(PLAIN).group_of_phase("all_reduce", "world") == Group("world", 16)


@pytest.mark.parametrize(
    ("phase", "dimension"),
    [
        ("gated_mla_self_attention", "dp"),
        ("self_attention", "dp"),
        ("moe_experts", "ep"),
        ("moe_layer", "ep"),
        ("dp-allreduce", "dp"),
        ("dp-reduce-scatter", "dp"),
        ("dp-buffers-broadcast", "dp"),
        ("ep-alltoall", "ep"),
        ("tp-allgather", "tp"),
        ("forward", "dp"),
        ("data", "dp"),
    ],
)
def test_the_default_routing_is_the_papers(phase: str, dimension: str):
    """ARGUS table 3, extended to what the producer reports."""
    assert RoutingTable(FULL).group_of_phase(phase) == group_along(FULL, dimension)


def test_a_user_pattern_goes_before_the_table():
    """`routing: {moe*: dp}` wins."""
    assert RoutingTable(FULL, {"moe*": "dp"}).group_of_phase("moe_layer").name == "dp:pp2.tp1"


def test_a_producer_may_name_the_dimension_or_the_group():
    """What the producer knows better than the phase's name counts."""
    table = RoutingTable(FULL)
    assert table.group_of_phase("all_reduce", "tp") == group_along(FULL, "tp")
    assert table.group_of_phase("all_reduce", "my-group") == Group("my-group", 0)


def test_a_hello_without_coordinates_is_data_parallel():
    """A plain torchrun job: dp is the rank, the world is the group."""
    hello = wire.hello(pid=1, rank=3, world_size=16, training_job="", monotonic_ns=1, realtime_ns=1)
    identity = Identity.from_hello(hello)
    assert (identity.coordinates, identity.sizes) == ({"dp": 3}, {"dp": 16})
    assert (identity.training_job, identity.role) == ("unnamed", "all")


def test_the_default_role_is_the_pipeline_and_tensor_index():
    """Ranks of one stage and tensor index run the same kernels."""
    hello = wire.hello(
        pid=1,
        rank=3,
        training_job="job",
        monotonic_ns=1,
        realtime_ns=1,
        coordinates={"dp": 1, "tp": 1, "pp": 0},
        sizes={"dp": 2, "tp": 2, "pp": 2},
    )
    assert Identity.from_hello(hello).role == "pp0.tp1"


SIZES = {"pp": 2, "dp": 8, "tp": 2, "cp": 2, "ep": 4}
PLACES = [
    Identity(
        "a",
        0,
        coordinates={"pp": pp, "dp": dp, "tp": tp, "cp": dp % SIZES["cp"], "ep": dp % SIZES["ep"]},
        sizes=SIZES,
    )
    for pp, dp, tp in itertools.product(*(range(SIZES[name]) for name in ("pp", "dp", "tp")))
]


def _waiting_for(first: Identity, dimensions: tuple[str, ...]) -> list[Identity]:
    """All to whom a chain of collectives along these dimensions leads."""
    reached, groups = [first], set()
    for place in reached:  # grows as it goes
        groups |= {group_along(place, dimension) for dimension in dimensions}
        along = ([group_along(other, dimension) for dimension in dimensions] for other in PLACES)
        found = (other for other, its in zip(PLACES, along, strict=True) if not groups.isdisjoint(its))
        reached += [other for other in found if other not in reached]
    return reached


@pytest.mark.parametrize(
    "dimensions",
    [
        *itertools.combinations(("cp", "dp", "edp", "ep", "pp", "tp"), 1),
        *itertools.combinations(("cp", "dp", "edp", "ep", "pp", "tp"), 2),
        ("cp", "ep", "tp"),
    ],
    ids="+".join,
)
def test_suspects_are_those_that_may_wait_for_one_another(dimensions: tuple[str, ...]) -> None:
    """Exactly, but for cp and edp together, which name the whole dp group."""
    first = PLACES[5]
    named = [
        other for other in PLACES if suspects_along(other, dimensions) == suspects_along(first, dimensions)
    ]
    waiting = [other for other in PLACES if other in _waiting_for(first, dimensions)]
    assert named == waiting or (dimensions == ("cp", "edp") and set(map(id, waiting)) < set(map(id, named)))


def test_suspects_along_a_dimension_that_the_rank_does_not_know_are_nobody() -> None:
    assert suspects_along(PLAIN, ["tp"]) == ""
    assert suspects_along(PLAIN, ["dp", "tp"]) == ""
    assert suspects_along(PLAIN, ["dp"]) == "dp"
