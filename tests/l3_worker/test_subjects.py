"""Which ranks a name of a group or a coordinate stands for."""

from __future__ import annotations

import pytest

from argus_l3_worker.reports.subjects import listed, members_at, members_of_group

# dp 8 with experts over 4, tp 2, pp 2: as Megatron numbers ranks.
INFO = {
    str(rank): {
        "tp": str(rank % 2),
        "dp": str(rank // 2 % 8),
        "pp": str(rank // 16),
        "ep": str(rank // 2 % 4),
        "node": f"host{rank // 8}",
        "role": f"pp{rank // 16}.tp{rank % 2}",
    }
    for rank in range(32)
}


@pytest.mark.parametrize(
    ("group", "ranks"),
    [
        ("tp:dp3.pp0", "6 7"),
        ("dp:pp1.tp0", "16 18 20 22 24 26 28 30"),
        ("ep:pp0.tp1.block1", "9 11 13 15"),
        ("edp:pp0.tp0.ep2", "4 12"),
        ("pp:dp0.tp1", "1 17"),
        ("world", ""),
        ("ranks:0-6.4", ""),
        ("dp:x", ""),
    ],
)
def test_a_process_group_is_read_as_the_exporter_names_it(group: str, ranks: str) -> None:
    """Its name says what its ranks share; a name that says nothing stands for nobody."""
    assert members_of_group(group, INFO) == tuple(ranks.split())


def test_a_coordinate_counts_within_its_role_or_stage() -> None:
    """Host 1 holds ranks of two roles; block 1 is derived from dp and ep."""
    assert members_at("pp0.tp1", "node", "host1", INFO) == ("9", "11", "13", "15")
    assert members_at("pp0", "node", "host1", INFO) == tuple(map(str, range(8, 16)))
    assert members_at("pp1.tp0", "edp", "1", INFO) == ("24", "26", "28", "30")
    assert members_at("pp0", "node", "", INFO) == ()
    assert members_at("pp0", "rack", "r1", INFO) == ()


def test_a_stage_may_be_of_one_gpu_model() -> None:
    """What the user adds to a role stays in the name of the stage."""
    models = {rank: {**of, "role": f"{of['role']}.{'ab'[int(rank) % 4 // 2]}"} for rank, of in INFO.items()}
    assert members_at("pp0.b", "node", "host1", models) == ("10", "11", "14", "15")
    assert members_at("pp0.tp1.b", "node", "host1", models) == ("11", "15")
    assert members_at("pp0", "node", "host1", models) == ()


def test_long_lists_end() -> None:
    """At most so many names, and how many more there are."""
    assert listed(list("abc"), 3) == "a, b, c"
    assert listed(list("abcde"), 3) == "a, b, c and 2 more"
