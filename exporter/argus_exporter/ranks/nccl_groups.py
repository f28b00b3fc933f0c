"""Which process group a communicator of NCCL is: all members have its hash, few a name."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from argus_core.nccl_page import Communicator
from argus_exporter.kernels.communicator_streams import Members, stream_of
from argus_exporter.place.topology import COORDINATES, UNKNOWN, Identity, group_along
from argus_exporter.ranks.rank_state import RankState

Told = Iterable[tuple[Identity, Communicator]]

_READ_SECONDS: Final = 5.0
"""Well below a window of kernels; some hundred reads of memory on a host of eight GPUs."""


def candidates_of(members: Told) -> dict[int, frozenset[str]]:
    """The dimensions that each communicator may be along, by its hash; `world`: all ranks of the job.

    A group along a dimension has as many members as that has ranks, and each member's place in it is its
    index along the dimension, and all of that group who are here have it. One rank may fit several by chance;
    the more members are here, the fewer remain. A place that two ranks claim says nothing. Where one member
    alone is here, a group of another kind (of Megatron's embeddings, say) may be taken for a dimension by its
    size and place.

    Args:
        members: every communicator that a rank of one job has told, with the rank.
    """
    members = list(members)
    contradicted = _contradicted(members)
    places = {identity.rank: _places(identity) for identity, _ in members}
    holders: dict[int, set[int]] = defaultdict(set)
    claimants: dict[int, set[int]] = defaultdict(set)
    group_of = {
        (identity.rank, name): group_along(identity, name).name
        for identity, _ in members
        for name, (_, size) in places[identity.rank].items()
        if size > 1
    }
    here: dict[str, set[int]] = defaultdict(set)
    for (rank, _), group in group_of.items():
        here[group].add(rank)
    fitting: dict[int, set[str]] = {}
    whole: dict[int, bool] = defaultdict(lambda: True)
    for identity, communicator in members:
        claimants[communicator.hash].add(identity.rank)
        if (communicator.hash, communicator.rank) in contradicted:
            continue
        place = communicator.rank, communicator.ranks
        fits = {
            name for name, own in places[identity.rank].items() if own == place and communicator.ranks > 1
        }
        holders[communicator.hash].add(identity.rank)
        known = fitting.get(communicator.hash)
        fitting[communicator.hash] = fits if known is None else known & fits
        whole[communicator.hash] &= place == (identity.rank, identity.world_size)
    found = {}
    for hash_ in claimants:
        # Whoever is here and of that group has the communicator, if it is that group's.
        fits = {
            name
            for name in fitting.get(hash_, ())
            if all(here[group_of[rank, name]] <= claimants[hash_] for rank in holders[hash_])
        }
        found[hash_] = frozenset(fits or ({"world"} if holders[hash_] and whole[hash_] else ()))
    return found


def _contradicted(members: Told) -> set[tuple[int, int]]:
    """Places, by hash and member, that two ranks say are theirs: one is wrong, and nobody knows which."""
    claims: dict[tuple[int, int], set[int]] = defaultdict(set)
    for identity, one in members:
        claims[one.hash, one.rank].add(identity.rank)
    return {place for place, ranks in claims.items() if len(ranks) > 1}


def dimensions_of(members: Told) -> dict[int, str]:
    """Dimension of each communicator by its hash; UNKNOWN where several, or none, would fit."""
    return {
        hash_: next(iter(names)) if len(names) == 1 else UNKNOWN
        for hash_, names in candidates_of(members).items()
    }


def _places(identity: Identity) -> dict[str, tuple[int, int]]:
    """Index of a rank along each dimension, and how many ranks that has."""
    at, of = identity.coordinates, identity.sizes
    places = {name: (at[name], of[name]) for name in COORDINATES if name in at and name in of}
    if "dp" in places and "ep" in places:  # the ranks that hold the same experts (`group_along`)
        places["edp"] = at["dp"] // of["ep"], of["dp"] // of["ep"]
    return places


def group_name(identity: Identity, dimensions: Mapping[int, str], communicator: Communicator) -> str:
    """The group as other series of the rank have it."""
    dimension = dimensions.get(communicator.hash, UNKNOWN)
    return UNKNOWN if dimension == UNKNOWN else group_along(identity, dimension).name


def members_of(told: Told, found: Mapping[int, frozenset[str]]) -> dict[int, Members]:
    """Who the ranks of each communicator are, by its hash; a place that two ranks claim is nobody's.

    Args:
        found: `candidates_of` the same.
    """
    told = list(told)
    contradicted = _contradicted(told)
    ranks: dict[int, dict[int, int]] = defaultdict(dict)
    for identity, one in told:
        of = ranks[one.hash]
        if (one.hash, one.rank) not in contradicted:
            of[one.rank] = identity.rank
    return {
        hash_: Members(of, next(iter(found[hash_])) if len(found[hash_]) == 1 else "")
        for hash_, of in ranks.items()
    }


class KernelGroups:
    """Tells the kernels of each rank which dimensions its communicators may be along, and who is in them."""

    def __init__(self, ranks: Iterable[RankState], clock: Callable[[], float]) -> None:
        self._ranks = ranks
        self._clock = clock
        self._read_at = -math.inf

    def tell(self) -> None:
        """Every few seconds; the members of all ranks that are here decide together."""
        if self._clock() - self._read_at < _READ_SECONDS:
            return
        self._read_at = self._clock()
        told = [(state, page) for state in self._ranks if (page := state.nccl()) is not None]
        for job in {state.identity.training_job for state, _ in told}:
            of_job = [(state, page) for state, page in told if state.identity.training_job == job]
            of_all = [(state.identity, one) for state, page in of_job for one in page.communicators]
            found = candidates_of(of_all)
            members = members_of(of_all, found)
            for state, page in of_job:
                state.kernels.communicators = {
                    stream_of(one.slot, one.generation): found[one.hash] for one in page.communicators
                }
                state.kernels.members = {
                    stream_of(one.slot, one.generation): members[one.hash] for one in page.communicators
                }
