"""The dimension of a communicator from its members' places in the layout."""

from __future__ import annotations

import itertools

import pytest

from argus_core.nccl_page import Communicator
from argus_exporter.place.topology import UNKNOWN, Identity
from argus_exporter.ranks.nccl_groups import (
    candidates_of,
    dimensions_of,
    group_name,
    members_of,
)


def communicator(hash_: int, rank: int, ranks: int) -> Communicator:
    return Communicator(0, 1, hash_, rank, ranks, 1, True, "", 0, 0, 0, (), ())


def job(tp: int, dp: int, pp: int) -> list[tuple[Identity, dict[str, int]]]:
    """Ranks in Megatron's order, with their index along each dimension."""
    sizes = {"tp": tp, "dp": dp, "pp": pp}
    places = [
        dict(zip(("pp", "dp", "tp"), at, strict=True)) for at in itertools.product(*map(range, (pp, dp, tp)))
    ]
    return [
        (Identity("job", rank, world_size=len(places), coordinates=at, sizes=sizes), at)
        for rank, at in enumerate(places)
    ]


def told(ranks: list[tuple[Identity, dict[str, int]]]) -> list[tuple[Identity, Communicator, str]]:
    """Each rank's communicators, those of one group with one hash, and what they are."""
    numbers: dict[tuple[str, tuple[tuple[str, int], ...]], int] = {}
    found = []
    for identity, at in ranks:
        for dimension, size in identity.sizes.items():
            others = tuple(sorted((name, index) for name, index in at.items() if name != dimension))
            number = numbers.setdefault((dimension, others), len(numbers) + 1)
            found.append((identity, communicator(number, at[dimension], size), dimension))
        found.append((identity, communicator(999, identity.rank, identity.world_size), "world"))
    return found


LAYOUTS = [(2, 2, 2), (4, 2, 1), (8, 1, 1), (2, 4, 1), (1, 8, 1), (4, 4, 2), (2, 8, 4), (8, 2, 4)]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_no_communicator_gets_a_dimension_that_it_is_not(layout: tuple[int, int, int]) -> None:
    """With all ranks here each is right; of one member, or as large as the job, it may be unknown."""
    members = told(job(*layout))
    found = dimensions_of((identity, one) for identity, one, _ in members)
    for identity, one, truth in members:
        alike = one.ranks == identity.world_size
        if one.ranks > 1 and not alike:
            assert found[one.hash] == truth
        elif alike:
            assert found[one.hash] in (
                truth,
                UNKNOWN,
                *(d for d, n in identity.sizes.items() if n == one.ranks),
            )
        else:
            assert found[one.hash] == UNKNOWN


def test_a_rank_alone_abstains_where_two_dimensions_fit() -> None:
    """Rank 0 is the first of every group, and dp is as large as tp here."""
    identity, _ = job(2, 2, 1)[0]
    assert dimensions_of([(identity, communicator(5, 0, 2))]) == {5: UNKNOWN}


def test_the_group_is_named_as_phases_name_it() -> None:
    identity, _ = job(2, 4, 1)[1]
    one = communicator(5, 1, 2)
    assert group_name(identity, {5: "tp"}, one) == "tp:dp0.pp0"
    assert group_name(identity, {5: "world"}, one) == "world"
    assert group_name(identity, {}, one) == UNKNOWN


def test_a_group_of_another_kind_that_fits_by_chance_is_not_a_dimension() -> None:
    """Megatron's group of first and last stage has tp's size here, and rank 0 the place of its tp group.

    Rank 1, of the same tp group, has no such communicator.
    """
    ranks = [identity for identity, _ in job(2, 1, 4)]
    members = [
        (ranks[0], communicator(7, 0, 2)),
        (ranks[1], communicator(7, 1, 2)),
        (ranks[0], communicator(10, 0, 2)),
    ]
    assert dimensions_of(members) == {7: "tp", 10: UNKNOWN}


def test_ranks_with_the_same_experts_are_a_dimension_too() -> None:
    """dp of 4 in two blocks of ep: a communicator of two may be either; those who are here tell which."""
    ranks = [
        Identity("job", dp, world_size=4, coordinates={"dp": dp, "ep": dp % 2}, sizes={"dp": 4, "ep": 2})
        for dp in range(4)
    ]
    members = [
        *((ranks[dp], communicator(20 + dp // 2, dp % 2, 2)) for dp in range(4)),
        *((ranks[dp], communicator(30 + dp % 2, dp // 2, 2)) for dp in range(4)),
    ]
    assert dimensions_of(members) == {20: "ep", 21: "ep", 30: "edp", 31: "edp"}
    assert candidates_of(members[:1]) == {20: {"ep", "edp"}}


def test_a_place_that_two_ranks_claim_is_nobodys() -> None:
    """Rank 7 tells garbage: the group keeps its dimension, and no peer the name of the wrong rank."""
    identities = [identity for identity, _ in job(2, 4, 1)]
    members = [
        (identity, communicator(100 + identity.rank // 2, identity.rank % 2, 2)) for identity in identities
    ]
    members.append((identities[7], communicator(100, 1, 2)))
    found = candidates_of(members)
    assert found == {100 + group: {"tp"} for group in range(4)}
    assert members_of(members, found)[100].ranks == {0: 0}
    assert members_of(members, found)[103].ranks == {0: 6, 1: 7}


def test_where_all_places_are_claimed_twice_nothing_is_known() -> None:
    identities = [identity for identity, _ in job(2, 4, 1)]
    members = [(identity, communicator(5, 0, 2)) for identity in identities]
    found = candidates_of(members)
    assert found == {5: frozenset()}
    assert members_of(members, found)[5].ranks == {}
