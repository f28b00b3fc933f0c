"""The published triples of one window, by role: what the statistics work on. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from argus_core import kernel_names
from argus_core.lognormal import lognormal_parameters

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]

Kind = Literal["compute", "transfer", "collective"]


@lru_cache(maxsize=1 << 14)
def kind_of(kernel: str) -> Kind:
    """What a kernel's duration says: `collective` waits for peers, `transfer` for a link, the rest computes.

    Memory sets count as compute: they run at the speed of the GPU's own memory.
    """
    if kernel_names.is_collective(kernel):
        return "collective"
    # By prefix: an id such as Memcpy_HtoD has no word boundary after memcpy.
    return "transfer" if kernel.lower().startswith("memcpy") else "compute"


@dataclass(frozen=True)
class Window:
    """One window of training steps: the same steps on every rank that is compared.

    `steps` is 0 where the job marks no steps; such windows are told apart by time alone.
    """

    last_step: int
    steps: int

    def __str__(self) -> str:
        if self.steps == 0:
            return "unmarked window"
        return f"steps {self.last_step - self.steps + 1}..{self.last_step}"


@dataclass(frozen=True)
class PairTriples:
    """The modes of one (kernel, stream) on the ranks that publish it.

    Attributes:
        ranks: positions in `RoleTriples.ranks`, ascending, shape (r,).
        count, p50, p99: shape (r, k), modes ascending by p50; where a rank has fewer than k modes, count is 0
            and p50 and p99 repeat its last mode. Every rank has an event. Durations in seconds, > 0.
    """

    kernel: str
    stream: str
    ranks: Ints
    count: Floats
    p50: Floats
    p99: Floats

    @property
    def kind(self) -> Kind:
        return kind_of(self.kernel)

    def at(self, rows: Bools) -> PairTriples:
        """These rows alone."""
        if rows.all():
            return self
        table = self.ranks[rows], self.count[rows], self.p50[rows], self.p99[rows]
        return PairTriples(self.kernel, self.stream, *table)

    @cached_property
    def events(self) -> Floats:
        """Events a rank, shape (r,)."""
        total: Floats = self.count.sum(axis=1)
        return total

    @cached_property
    def seconds(self) -> Floats:
        """Time a rank spent in the pair, shape (r,): sum of count x median, the tail excluded."""
        total: Floats = (self.count * self.p50).sum(axis=1)
        return total

    def components(self) -> tuple[Floats, Floats, Floats]:
        """(weight, mu, sigma) of each rank's log-normal mixture, each of shape (r, k); weights sum to 1.

        Source: ARGUS equation 2, with the small-sample z_n of argus_core.lognormal.
        """
        mu, sigma = lognormal_parameters(self.p50, self.p99, self.count)
        return self.count / self.events[:, None], mu, sigma


def rank_seconds(pairs: Iterable[PairTriples], ranks: int) -> Floats:
    """Time that each rank spent in all of these, shape (ranks,)."""
    total = np.zeros(ranks)
    for pair in pairs:
        total[pair.ranks] += pair.seconds
    return total


@dataclass(frozen=True)
class RoleTriples:
    """Everything that one role of one job published about one window.

    Attributes:
        unpublished: most seconds that a pair which the rank does not publish may have taken, shape (ranks,);
            NaN where the rank does not say.
        coordinates: by name, each rank's value, empty where it has none: what ranks may have in common.
        tail_events: launches of compute kernels that lie outside of every mode, shape (ranks,), NaN where the
            rank does not say; None: nobody says.
        work: units of work (tokens, samples) that a rank reports a step of the window, or a second, shape
            (ranks,), NaN where it reports none; None: nobody does.
        gpus: of each rank, empty where that is unknown.
    """

    training_job: str
    role: str
    window: Window
    ranks: tuple[str, ...]
    pairs: tuple[PairTriples, ...]
    unpublished: Floats
    coordinates: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tail_events: Floats | None = None
    work: Floats | None = None
    gpus: tuple[str, ...] = ()


def merged(name: str, roles: Sequence[RoleTriples]) -> RoleTriples:
    """Roles of a job as one; its ranks, and the rows of each pair, are one role after the other."""
    if len(roles) == 1:
        return roles[0]
    parts: dict[tuple[str, str], list[tuple[int, PairTriples]]] = {}
    offset = 0
    for role in roles:
        for pair in role.pairs:
            parts.setdefault((pair.kernel, pair.stream), []).append((offset, pair))
        offset += len(role.ranks)
    names = sorted({key for role in roles for key in role.coordinates})
    return RoleTriples(
        roles[0].training_job,
        name,
        roles[0].window,
        tuple(rank for role in roles for rank in role.ranks),
        tuple(_stacked(of_pair) for of_pair in parts.values()),
        np.concatenate([role.unpublished for role in roles]),
        {
            key: tuple(
                chain.from_iterable(one.coordinates.get(key) or ("",) * len(one.ranks) for one in roles)
            )
            for key in names
        },
        np.concatenate([_or_unknown(role.tail_events, role) for role in roles]),
        np.concatenate([_or_unknown(role.work, role) for role in roles]),
    )


def _or_unknown(values: Floats | None, role: RoleTriples) -> Floats:
    return np.full(len(role.ranks), np.nan) if values is None else values


def _stacked(parts: Sequence[tuple[int, PairTriples]]) -> PairTriples:
    offsets, pairs = zip(*parts, strict=True)
    sizes = [pair.ranks.size for pair in pairs]
    width = max(pair.count.shape[1] for pair in pairs)

    def stacked(tables: Sequence[Floats], how: Literal["constant", "edge"]) -> Floats:
        return np.concatenate(
            [
                table if table.shape[1] == width
                else np.pad(table, ((0, 0), (0, width - table.shape[1])), mode=how)
                for table in tables
            ]
        )  # fmt: skip

    return PairTriples(
        pairs[0].kernel,
        pairs[0].stream,
        np.concatenate([pair.ranks for pair in pairs]) + np.repeat(offsets, sizes),
        stacked([pair.count for pair in pairs], "constant"),
        stacked([pair.p50 for pair in pairs], "edge"),
        stacked([pair.p99 for pair in pairs], "edge"),
    )
