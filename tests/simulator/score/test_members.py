"""Whom an alert without a rank accuses."""

from __future__ import annotations

import pytest

from argus_simulator.score.members import JobMembers
from argus_simulator.stack import Samples


def query(promql: str) -> Samples:
    """A job of 2 replicas x 2 tensor-parallel ranks x 2 stages, two ranks a host and two hosts a rack."""
    ranks = [
        {
            "rank": str(rank),
            "node": f"h{rank // 2}",
            "rack": f"r{rank // 4}",
            "tp": str(rank % 2),
            "dp": str(rank // 2 % 2),
            "pp": str(rank // 4),
            "role": f"pp{rank // 4}.tp{rank % 2}",
        }
        for rank in range(8)
    ]
    if "argus_rank_info" in promql:
        return [(labels, 1.0) for labels in ranks]
    if "argus_phase_info" in promql:
        return [({"rank": at["rank"], "set": f"tp.dp:pp{at['pp']}"}, 1.0) for at in ranks]
    return [({"rank": at["rank"], "group": f"tp:dp{at['dp']}.pp{at['pp']}"}, 1.0) for at in ranks]


MEMBERS = JobMembers(query, "job", 100.0)
SHIFT = {"alertname": "ArgusKernelGroupShift"}


@pytest.mark.parametrize(
    ("labels", "ranks"),
    [
        ({"alertname": "ArgusStragglerRank", "set": "tp.dp:pp1"}, {4, 5, 6, 7}),
        ({"alertname": "ArgusCollectiveSlowLink", "group": "tp:dp1.pp0"}, {2, 3}),
        ({**SHIFT, "coordinate": "node", "value": "h3", "role": "pp1"}, {6, 7}),
        ({**SHIFT, "coordinate": "rack", "value": "r1", "role": "pp1"}, {4, 5, 6, 7}),
        ({**SHIFT, "coordinate": "dp", "value": "1", "role": "pp0"}, {2, 3}),
        ({**SHIFT, "coordinate": "dp", "value": "1", "role": "pp0.tp1"}, {3}),
    ],
    ids=["set", "group", "host", "rack", "replica within a stage", "replica within a role"],
)
def test_sets_groups_and_coordinates_are_looked_up(labels: dict[str, str], ranks: set[int]):
    """In the labels that the job itself has published."""
    assert MEMBERS(labels) == ranks


def test_replicas_of_the_experts_are_counted_along_the_data_parallel_ranks():
    """8 data-parallel ranks, the experts spread over 4: ranks 4 to 7 hold the second copy of all of them."""

    def experts(promql: str) -> Samples:
        if "argus_rank_info" not in promql:
            return []
        return [
            ({"rank": str(rank), "dp": str(rank), "ep": str(rank % 4), "role": "pp0"}, 1.0)
            for rank in range(8)
        ]

    members = JobMembers(experts, "job", 100.0)
    assert members({**SHIFT, "coordinate": "edp", "value": "1", "role": "pp0"}) == {4, 5, 6, 7}


@pytest.mark.parametrize(
    "labels",
    [
        {"alertname": "ArgusGroupImbalance", "group": "tp:dp1.pp0"},
        {"alertname": "ArgusStragglerRank", "set": "of another job"},
        {**SHIFT, "coordinate": "none", "value": "", "role": "pp0"},
        {"alertname": "ArgusIterationRegression"},
    ],
    ids=["where, not who", "a set that nobody is in", "no coordinate explains it", "about the job"],
)
def test_nobody_is_accused(labels: dict[str, str]):
    """A group that only says where, a split that nothing explains, and what is about the job."""
    assert MEMBERS(labels) == frozenset()


def test_a_group_of_everybody_is_nobody():
    """It does not tell one rank from another."""

    def one_group(promql: str) -> Samples:
        return [({**labels, "group": "dp:all"}, value) for labels, value in query(promql)]

    members = JobMembers(one_group, "job", 100.0)
    assert members({"alertname": "ArgusCollectiveSlowLink", "group": "dp:all"}) == frozenset()
