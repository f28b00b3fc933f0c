"""Which ranks a fault hits, said by topology: "rank", "host", "half of group ep", ... chosen by the seed.

A scenario that names numbers always hits the same ranks; one that says `where` hits others with every seed.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from argus_simulator.topology import GROUP_DIMENSIONS, Topology

GRAMMAR: Final = (
    "all | rank | N ranks | N% of ranks | host | N hosts | rack | model | stage S | rank of stage S | "
    "group DIM | N groups DIM | rank of group DIM | N ranks of group DIM | half of group DIM "
    f"(S: first, last, middle or a number; DIM: {', '.join(GROUP_DIMENSIONS)})"
)
_DIMENSION: Final = "|".join(GROUP_DIMENSIONS)
_SINGLE: Final = re.compile(
    rf"(?P<all>all)|(?P<groups>\d+) groups (?P<of>{_DIMENSION})"
    r"|(?P<host>host)|(?P<hosts>\d+) hosts|(?P<rack>rack)|(?P<model>model)"
    r"|(?:(?P<one>rank)|(?P<count>\d+) ranks|(?P<share>\d+)% of ranks|(?P<half>half))?"
    rf"(?: ?of )?(?:stage (?P<stage>first|last|middle|\d+)|group (?P<group>{_DIMENSION}))?"
)


def choose_ranks(where: str, topology: Topology, random: np.random.Generator) -> tuple[int, ...]:
    """Ranks, ascending.

    Raises:
        ValueError: the text is not one of `GRAMMAR`, or asks for more than there is.
    """
    match = _SINGLE.fullmatch(where.strip()) if where.strip() else None
    if match is None:
        raise ValueError(f"where is {where!r}; allowed: {GRAMMAR}")
    every = tuple(range(topology.ranks))
    if match["all"]:
        return every
    if match["host"] or match["hosts"] or match["rack"] or match["model"]:
        return _places(match, topology, random)
    if match["groups"]:
        groups = sorted(topology.groups(match["of"]).values())
        places = random.choice(
            len(groups), _at_most(int(match["groups"]), len(groups), "groups"), replace=False
        )
        return tuple(sorted(rank for place in places for rank in groups[place]))
    pool = every
    if match["stage"]:
        stage = _stage(match["stage"], topology)
        pool = tuple(rank for rank in every if topology.coordinates(rank)["pp"] == stage)
    elif match["group"]:
        groups = sorted(topology.groups(match["group"]).values())
        pool = groups[int(random.integers(len(groups)))]
    count = len(pool)
    if match["one"]:
        count = 1
    elif match["count"]:
        count = int(match["count"])
    elif match["share"]:
        count = max(1, round(len(pool) * int(match["share"]) / 100))
    elif match["half"]:
        count = max(1, len(pool) // 2)
    chosen = random.choice(len(pool), _at_most(count, len(pool), "ranks"), replace=False)
    return tuple(sorted(pool[index] for index in chosen))


def _places(match: re.Match[str], topology: Topology, random: np.random.Generator) -> tuple[int, ...]:
    """All ranks of some hosts, a rack, or the hosts of the last GPU model."""
    if match["model"]:
        if not topology.gpu_models:
            raise ValueError("where is 'model'; allowed: only with topology.gpu_models")
        slow = topology.gpu_models[-1]
        return tuple(rank for rank in range(topology.ranks) if topology.gpu_model(rank) == slow)
    place = topology.rack if match["rack"] else topology.host_index
    places = sorted({place(rank) for rank in range(topology.ranks)})
    count = _at_most(int(match["hosts"] or 1), len(places), "hosts")
    chosen = {places[index] for index in random.choice(len(places), count, replace=False)}
    return tuple(rank for rank in range(topology.ranks) if place(rank) in chosen)


def _at_most(count: int, there: int, what: str) -> int:
    if not 1 <= count <= there:
        raise ValueError(f"where asks for {count} {what}; allowed: 1 to the {there} that are there")
    return count


def _stage(text: str, topology: Topology) -> int:
    named = {"first": 0, "last": topology.pp - 1, "middle": topology.pp // 2}
    stage = named[text] if text in named else int(text)
    if stage >= topology.pp:
        raise ValueError(f"where names stage {stage}; allowed: 0 to {topology.pp - 1}")
    return stage
