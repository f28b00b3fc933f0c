"""What a fleet publishes, against the job that is played for it, the catalogue and the exporter's groups."""

from __future__ import annotations

import numpy as np
import pytest

from argus_core import catalogue
from argus_exporter.place.topology import Identity, default_role, group_along
from argus_simulator.fast_play.history import record
from argus_simulator.fast_play.storage import STALE
from argus_simulator.fleet.play import Fleet, FleetPlan, history, layout
from argus_simulator.lab.scenario import Scenario, TopologySettings
from argus_simulator.topology import Topology

BEGAN = 1_800_000_000.0
TIMES = history(BEGAN + 240.0, 240.0, 30.0)
LARGE = Topology(dp=64, tp=2, pp=2, ep=2)
TARGET = {"job", "instance"}

Values = dict[str, dict[frozenset[tuple[str, str]], float]]


def series(job: Fleet, at: float) -> Values:
    """Values by sample name and labels, without those that do not exist at that time."""
    found: Values = {}
    for block, values in zip(job.blocks, job.sample(BEGAN + at), strict=True):
        for labels, value in zip(block.labels(), values.reshape(-1).tolist(), strict=True):
            if not np.isnan(value):
                key = frozenset((name, text) for name, text in labels if name != "__name__")
                assert key not in found.setdefault(block.name, {}), f"{block.name}{dict(key)} comes twice"
                found[block.name][key] = value
    return found


def of(values: dict[frozenset[tuple[str, str]], float], **labels: str) -> list[float]:
    return [value for key, value in values.items() if set(labels.items()) <= key]


@pytest.fixture(scope="module")
def afternoon() -> Fleet:
    """A slow rank, one that falls silent, and one whose kernels are not seen any more."""
    faults = (
        "mechanism=kernels,ranks=77,phases=*-backward,factor=2",
        "mechanism=leave,ranks=130,onset=2m",
        "mechanism=channel,channel=kernels,reason=cupti_taken,ranks=131,onset=2m",
    )
    return Fleet(FleetPlan(LARGE, faults=faults), TIMES)


@pytest.mark.slow
def test_a_job_that_is_played_whole_is_what_its_exporters_said() -> None:
    """Every series of every rank, with its labels and its value at each time."""
    plan = FleetPlan(Topology(dp=2, tp=2, pp=2, ep=2), training_job="j", seed=3)
    fleet = Fleet(plan, TIMES[:4])
    begin_s = BEGAN - 180
    every = {f"j-host-{host}:9877": round(BEGAN * 1000) for host in range(2)}
    scenario = Scenario("j", 3, step_seconds=4.0, topology=TopologySettings(2, 2, 2, 2))
    played = record(
        scenario, "j", round(begin_s * 1e9), 300.0, scrape_ms=30_000, scrape_offsets_ms=every, top_pairs=20
    )
    for at in (0.0, 30.0, 60.0, 90.0):
        said = {
            (*sorted(pair for pair in labels if pair[0] != "instance"),): float(values[place[0]])
            for labels, (times, values) in played.series.items()
            if len(place := np.flatnonzero(times == round((BEGAN + at) * 1000)))
            and values[place[0]].view(np.uint64) != np.float64(STALE).view(np.uint64)
            and "rank" in dict(labels)
        }
        ours = {
            (*sorted((*(pair for pair in key if pair[0] != "instance"), ("__name__", name))),): value
            for name, values in series(fleet, at).items()
            for key, value in values.items()
            if "rank" in dict(key)
        }
        assert len(said) > 1000
        assert ours == said


@pytest.mark.slow
def test_labels_are_those_of_the_catalogue(afternoon: Fleet) -> None:
    """Every family has exactly its labels, and those that a scrape adds."""
    seen = set()
    for block in afternoon.blocks:
        family = catalogue.BY_NAME.get(block.family)
        if family is None:
            assert block.family in {"up"} or block.family.startswith(("process_", "scrape_")), block.family
            continue
        seen.add(family.name)
        names = {name for name, _ in next(block.labels())} - TARGET - {"__name__", "quantile"}
        assert set(family.labels) <= names <= set(family.labels) | set(family.optional_labels), block.name
        assert block.name in family.sample_names
        assert block.type == family.type
    assert {
        "argus_phase_duration_seconds",
        "argus_kernel_mode_p50_seconds",
        "argus_stack_samples_total",
    } <= seen


@pytest.mark.slow
def test_ranks_are_told_where_they_are(afternoon: Fleet) -> None:
    """In the words of the exporter: coordinates, role, groups and how large these are."""
    found = series(afternoon, 60.0)
    places = {int(dict(key)["rank"]): dict(key) for key in found["argus_rank_info"]}
    numbers = {int(dict(key)["rank"]): value for key, value in found["argus_rank_number"].items()}
    sizes: dict[int, dict[str, float]] = {}
    for key, value in found["argus_group_expected_ranks"].items():
        sizes.setdefault(int(dict(key)["rank"]), {})[dict(key)["group"]] = value
    assert set(places) == set(range(LARGE.ranks))
    for rank, place in places.items():
        at = LARGE.coordinates(rank)
        identity = Identity("fleet", rank, world_size=LARGE.ranks, coordinates=at, sizes=LARGE.sizes)
        assert numbers[rank] == rank
        assert {name: int(place[name]) for name in at} == at
        assert (place["role"], place["node"]) == (default_role(at), f"sim-host-{rank // 8}")
        for dimension in ("dp", "tp", "ep", "edp"):
            group = group_along(identity, dimension)
            assert sizes[rank][group.name] == group.size


@pytest.mark.slow
def test_a_slow_rank_is_slow_alone_and_its_peers_wait(afternoon: Fleet) -> None:
    """Backward holds the transfers of tensors, too; nobody waits less for gradients than the slow rank."""
    found = series(afternoon, 240.0)["argus_phase_duration_seconds_sum"]
    backward = {int(dict(key)["rank"]): value for key, value in found.items() if ("phase", "backward") in key}
    stage = [backward[rank] for rank in backward if rank < LARGE.ranks // 2 and rank != 77]
    assert backward[77] > 1.4 * max(stage)
    waits = {
        int(dict(key)["rank"]): value for key, value in found.items() if ("phase", "dp-grads-sync") in key
    }
    peers = [waits[rank] for rank in LARGE.members(77, "dp")]
    assert waits[77] == min(peers)


@pytest.mark.slow
def test_a_fault_begins_with_a_step(afternoon: Fleet) -> None:
    """Thirty steps into the history, and so later than two minutes: they are slow by then."""
    from_the_first, *later = afternoon.onsets
    assert BEGAN - 4 < from_the_first < BEGAN + 60
    assert later[0] == later[1]
    assert from_the_first + 120 < later[0] < BEGAN + 240


@pytest.mark.slow
def test_a_silent_rank_ends_and_a_blind_channel_says_why(afternoon: Fleet) -> None:
    """The first is down; the second keeps its phases and gives a reason. No others."""
    before, after = series(afternoon, 60.0), series(afternoon, 240.0)
    assert of(before["argus_rank_up"], rank="130") == [1.0]
    assert of(after["argus_rank_up"], rank="130") == [0.0]
    assert sum(after["argus_rank_up"].values()) == LARGE.ranks - 1
    assert of(after["argus_channel_up"], rank="131", channel="kernels") == [0.0]
    assert of(after["argus_channel_info"], rank="131", channel="kernels", reason="cupti_taken") == [1.0]


@pytest.mark.slow
def test_a_hundred_thousand_ranks_fit() -> None:
    """Phases only; a replica of 64 ranks is played twice."""
    plan = FleetPlan(
        layout(102_400, tp=8, pp=8, ep=1, ranks_per_host=8), channels=("phases",), step_seconds=30.0
    )
    job = Fleet(plan, TIMES[:1])
    count = sum(int((~np.isnan(values)).sum()) for values in job.sample(BEGAN))
    assert count > 5_000_000
