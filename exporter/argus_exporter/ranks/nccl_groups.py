"""Which process group a communicator of NCCL is: all members have its hash, few a name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from argus_core.nccl_page import Communicator
from argus_exporter.place.topology import COORDINATES, UNKNOWN, Identity, group_along

Members = Iterable[tuple[Identity, Communicator]]


def dimensions_of(members: Members) -> dict[int, str]:
    """Dimension of each communicator by its hash; UNKNOWN where several, or none, would fit.

    A group along a dimension has as many members as that has ranks, and each member's place in it is its
    index along the dimension, and all of that group who are here have it. One rank may fit several by chance;
    the more members are here, the fewer remain. Where one member alone is here, a group of another kind (of
    Megatron's embeddings, say) may be taken for a dimension by its size and place.

    Args:
        members: every communicator that a rank of one job has told, with the rank.
    """
    members = list(members)
    holders: dict[int, set[int]] = defaultdict(set)
    group_of = {
        (identity.rank, name): group_along(identity, name).name
        for identity, _ in members
        for name in COORDINATES
        if identity.sizes.get(name, 0) > 1
    }
    here: dict[str, set[int]] = defaultdict(set)
    for (rank, _), group in group_of.items():
        here[group].add(rank)
    fitting: dict[int, set[str]] = {}
    whole: dict[int, bool] = defaultdict(lambda: True)
    for identity, communicator in members:
        at, of = identity.coordinates, identity.sizes
        fits = {
            name
            for name in COORDINATES
            if of.get(name, 0) == communicator.ranks > 1 and at.get(name) == communicator.rank
        }
        holders[communicator.hash].add(identity.rank)
        known = fitting.get(communicator.hash)
        fitting[communicator.hash] = fits if known is None else known & fits
        whole[communicator.hash] &= (communicator.ranks, communicator.rank) == (
            identity.world_size,
            identity.rank,
        )
    found = {}
    for hash_, some in fitting.items():
        # Whoever is here and of that group has the communicator, if it is that group's.
        fits = {
            name
            for name in some
            if all(here[group_of[rank, name]] <= holders[hash_] for rank in holders[hash_])
        }
        if len(fits) == 1:
            (found[hash_],) = fits
        else:
            found[hash_] = "world" if not fits and whole[hash_] else UNKNOWN
    return found


def group_name(identity: Identity, dimensions: Mapping[int, str], communicator: Communicator) -> str:
    """The group as other series of the rank have it."""
    dimension = dimensions.get(communicator.hash, UNKNOWN)
    return UNKNOWN if dimension == UNKNOWN else group_along(identity, dimension).name
