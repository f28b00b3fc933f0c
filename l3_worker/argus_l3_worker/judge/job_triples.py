"""All roles of one job in one window as one table, which is made once and judged in several ways."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from argus_l3_worker.judge.segments import Segments
from argus_l3_worker.roles import STAGE, stage_of
from argus_l3_worker.triples import PairTriples, RoleTriples, Window, merged


class JobTriples:
    """What the roles of a job published: a row for each rank.

    Scopes are roles that differ in their tensor index alone, of one pipeline stage and one window. The ranks
    of a scope lie together, and within it those of a role.

    Attributes:
        roles: in the order of the rows; at least one.
        whole: all of them as one.
        by_role, by_scope: the rows of each.
    """

    def __init__(self, roles: Sequence[RoleTriples]) -> None:
        members: dict[tuple[str, frozenset[str], Window], list[RoleTriples]] = {}
        for role in roles:
            stages = frozenset(role.coordinates.get(STAGE, ()))
            members.setdefault((stage_of(role.role), stages, role.window), []).append(role)
        self.roles = [role for of_scope in members.values() for role in of_scope]
        self.whole = merged("", self.roles)
        self.by_role = Segments([len(role.ranks) for role in self.roles])
        self.by_scope = Segments([sum(len(role.ranks) for role in of) for of in members.values()])
        self._named = [
            (of[0].role if len(of) == 1 else stage, of[0].window) for (stage, *_), of in members.items()
        ]

    @cached_property
    def scopes(self) -> list[RoleTriples]:
        """Each as one role, by the name of its stage; of a single role by its own."""
        rows = self.by_scope.slices
        pairs: list[list[PairTriples]] = [[] for _ in rows]
        for pair in self.whole.pairs:
            begin = np.searchsorted(pair.ranks, [own.start for own in rows]).tolist()
            for place, (first, last) in enumerate(zip(begin, [*begin[1:], pair.ranks.size], strict=True)):
                if first < last:
                    pairs[place].append(_rows(pair, slice(first, last), rows[place].start))
        return list(self._scopes(rows, pairs))

    def _scopes(self, rows: Sequence[slice], pairs: Sequence[Sequence[PairTriples]]) -> Iterator[RoleTriples]:
        whole = self.whole
        for own, of_scope, (name, window) in zip(rows, pairs, self._named, strict=True):
            coordinates = {key: values[own] for key, values in whole.coordinates.items()}
            yield RoleTriples(
                whole.training_job,
                name,
                window,
                whole.ranks[own],
                tuple(of_scope),
                whole.unpublished[own],
                {key: values for key, values in coordinates.items() if any(values)},
                None if whole.tail_events is None else whole.tail_events[own],
                None if whole.work is None else whole.work[own],
            )


def _rows(pair: PairTriples, rows: slice, begin: int) -> PairTriples:
    table = pair.count[rows], pair.p50[rows], pair.p99[rows]
    return PairTriples(pair.kernel, pair.stream, pair.ranks[rows] - begin, *table)
