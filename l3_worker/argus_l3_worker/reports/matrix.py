"""The W1 matrix of one kernel, ranks in the order of the topology. Only for what a person looks at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.spatial.distance import pdist, squareform

from argus_l3_worker.judge.wasserstein import Mixtures, grid, mean_distances, trapezoid_weights
from argus_l3_worker.triples import Floats, Ints, PairTriples

ORDER: Final = ("pp", "tp", "dp", "node")
"""Labels of `argus_rank_info` by which ranks are ordered, the outermost first."""
# Ranks of the largest matrix: 4,000 x 4,000 x 8 B = 128 MB, 4 s at 500 grid points.
MOST_RANKS: Final = 4_000
# Among these are always the ranks that lie farthest from all others.
_FARTHEST: Final = 100
_MOST_POINTS: Final = 512


@dataclass(frozen=True)
class Matrix:
    """Distances between ranks.

    Attributes:
        ranks: names, in the order of the topology.
        places: where each is, such as `pp0 tp1 dp3 host2`.
        seconds: W1 in seconds, symmetric, 0 on the diagonal, shape (ranks, ranks).
        compared: ranks that publish the kernel; more than `ranks` where the matrix is a sample.
    """

    kernel: str
    stream: str
    ranks: tuple[str, ...]
    places: tuple[str, ...]
    seconds: Floats
    compared: int

    @property
    def note(self) -> str:
        """What is not shown; empty where all is."""
        if len(self.ranks) == self.compared:
            return ""
        return (
            f"{len(self.ranks)} of {self.compared} ranks: every "
            f"{self.compared / len(self.ranks):.1f}th, and those farthest from all others"
        )


def distance_matrix(
    pair: PairTriples,
    ranks: Sequence[str],
    labels: Mapping[str, Mapping[str, str]],
    most_ranks: int = MOST_RANKS,
) -> Matrix:
    """W1 between the ranks that publish `pair`.

    Args:
        ranks: names of the positions in `pair.ranks`.
        labels: `argus_rank_info` by rank.
        most_ranks: of more a sample is taken: evenly along the order, and the farthest.
    """
    names = [ranks[position] for position in pair.ranks]
    order = np.array(sorted(range(len(names)), key=lambda row: _place(names[row], labels)), dtype=np.intp)
    mixtures = Mixtures(*pair.components())
    chosen = order
    if len(order) > most_ranks:
        chosen = _sample(mixtures, order, most_ranks)
    shown = Mixtures(mixtures.weight[chosen], mixtures.mu[chosen], mixtures.sigma[chosen])
    points = grid(shown)
    if len(points) > _MOST_POINTS:
        points = points[np.unique(np.linspace(0, len(points) - 1, _MOST_POINTS).astype(int))]
    # sum w |F - G| = sum |w F - w G|, and pdist is compiled.
    weighted = (shown.cdf(points) * trapezoid_weights(np.exp(points))[:, None]).T
    seconds: Floats = squareform(pdist(np.ascontiguousarray(weighted), "cityblock"))
    return Matrix(
        pair.kernel,
        pair.stream,
        tuple(names[row] for row in chosen),
        tuple(_described(labels.get(names[row], {})) for row in chosen),
        seconds,
        len(order),
    )


def binned(values: Floats, most: int) -> tuple[Floats, int]:
    """(the matrix in at most `most` x `most` cells, ranks a cell): the largest distance within each cell.

    The mean would let one far rank vanish among its healthy neighbours.
    """
    size = -(-len(values) // most)
    if size <= 1:
        return values, 1
    begin = np.arange(0, len(values), size)
    rows: Floats = np.maximum.reduceat(values, begin, axis=0)
    cells: Floats = np.maximum.reduceat(rows, begin, axis=1)
    return cells, size


def _sample(mixtures: Mixtures, order: Ints, most: int) -> Ints:
    distances = mean_distances(mixtures)
    farthest = np.argsort(-distances, kind="stable")[: min(_FARTHEST, most // 2)]
    evenly = order[np.unique(np.linspace(0, len(order) - 1, most - len(farthest)).astype(int))]
    kept = np.isin(order, np.union1d(evenly, farthest))
    return order[kept]


def _place(rank: str, labels: Mapping[str, Mapping[str, str]]) -> tuple[tuple[bool, str], ...]:
    of = labels.get(rank, {})
    return (*(_natural(of.get(name, "")) for name in ORDER), _natural(rank))


def _natural(value: str) -> tuple[bool, str]:
    """Numbers by value, texts such as host10 by their text and then the number at their end."""
    stem = value.rstrip("0123456789")
    number = value[len(stem) :]
    return bool(stem), f"{stem}{number:0>12}" if number else stem


def _described(labels: Mapping[str, str]) -> str:
    named = [f"{name}{labels[name]}" for name in ORDER[:-1] if labels.get(name)]
    return " ".join([*named, *([labels["node"]] if labels.get("node") else [])])
