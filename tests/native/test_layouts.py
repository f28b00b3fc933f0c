"""Fake runs of eight layouts: dimension and group of every kernel of NCCL, by what both libraries tell.

Each rank is a process with the communicators that a rank of Megatron has; every other layout runs all of its
kernels on one stream.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from argus_core.modes import ModeConfig
from argus_core.nccl_page import NcclPage
from argus_exporter.kernels.communicator_streams import by_communicator, stream_of
from argus_exporter.kernels.kernel_windows import Boundary, ClosedWindow
from argus_exporter.kernels.pairs import stream_keys
from argus_exporter.kernels.window_summary import WindowSummariser
from argus_exporter.place.topology import Identity, group_along
from argus_exporter.ranks.nccl_groups import candidates_of
from native.builds import Build
from native.listener import Connection, listening
from native.nccl_host import read_page
from native.test_launches import NOBODYS, launch

LAYOUTS = [
    {"tp": 2, "pp": 2, "dp": 2},
    {"tp": 4, "pp": 1, "dp": 2},
    {"tp": 2, "pp": 4, "dp": 1},
    {"tp": 1, "pp": 2, "dp": 4},
    {"tp": 2, "pp": 1, "dp": 2, "cp": 2},
    {"tp": 1, "pp": 1, "dp": 8, "ep": 4},
    {"tp": 2, "pp": 1, "dp": 4, "ep": 2},
    {"tp": 1, "pp": 2, "dp": 4, "ep": 2},
]
PAIR = "pair"
"""Two neighbouring stages: PyTorch makes a communicator for them where they send without a group."""


@dataclass
class Rank:
    identity: Identity
    communicators: list[tuple[str, int, int, int]] = field(default_factory=list)
    """What each is along; its hash, the rank's place in it, its size."""
    page: NcclPage | None = None
    connection: Connection | None = None


def job(layout: dict[str, int]) -> list[Rank]:
    """Ranks in Megatron's order, tp fastest, then dp, then pp, with their communicators."""
    sizes = dict(layout)
    sizes["dp"] *= sizes.get("cp", 1)  # as ARGUS counts: cp and ep are within dp
    world = sizes["tp"] * sizes["pp"] * sizes["dp"]
    ranks = []
    for number, (pp, dp, tp) in enumerate(
        itertools.product(range(sizes["pp"]), range(sizes["dp"]), range(sizes["tp"]))
    ):
        at = {"dp": dp, "tp": tp, "pp": pp} | {
            name: dp % sizes[name] for name in ("cp", "ep") if name in sizes
        }
        ranks.append(Rank(Identity("job", number, world_size=world, coordinates=at, sizes=sizes)))
    hashes = itertools.count(0x1000)
    dimensions = ("tp", "dp", "cp", "ep", "edp", "pp")
    for dimension in dimensions:
        if dimension in sizes or (dimension == "edp" and "ep" in sizes):
            _connect(dimension, _members(ranks, dimension), hashes)
    _connect("world", [ranks], hashes)
    for members in _members(ranks, "pp"):
        if len(members) > 1:
            _connect(PAIR, [list(two) for two in itertools.pairwise(members)], hashes)
    return ranks


def _members(ranks: list[Rank], dimension: str) -> Iterable[list[Rank]]:
    groups: dict[str, list[Rank]] = defaultdict(list)
    for rank in ranks:
        groups[group_along(rank.identity, dimension).name].append(rank)
    return groups.values()


def _connect(dimension: str, groups: Iterable[list[Rank]], hashes: Iterator[int]) -> None:
    for group in groups:
        if len(group) > 1:  # NCCL tells of no operation of one rank
            hash_ = next(hashes)
            for place, rank in enumerate(group):
                rank.communicators.append((dimension, hash_, place, len(group)))


def run(build: Build, folder: Path, ranks: list[Rank], *, shared: bool) -> None:
    """Train all ranks; each keeps what it told the exporter."""
    socket = folder / "exporter.sock"

    def train(rank: Rank) -> None:
        dump = folder / f"page.{rank.identity.rank}"
        made = [f"comm:{hash_}:{place}:{size}" for _, hash_, place, size in rank.communicators]
        pairs = sum(dimension == PAIR for dimension, *_ in rank.communicators)
        groups = len(made) - pairs
        actions = [*made[:groups], "ready", *(["shared"] if shared else []), "train:4"]
        if pairs:
            actions += [*made[groups:], f"sends:{groups}:4"]
        launch(
            build,
            socket,
            "cuda",
            *actions,
            RANK=rank.identity.rank,
            WORLD_SIZE=len(ranks),
            FAKE_PAGE_DUMP=str(dump),
        )
        rank.page = read_page(dump.read_bytes())

    with listening(socket) as listener:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(train, ranks))
        for connection in listener.wait_ended(len(ranks)):
            ranks[connection.hello.rank].connection = connection


def judge(rank: Rank, here: list[Rank], ranks: list[Rank]) -> tuple[int, int, int]:
    """Kernels of NCCL whose group is right, wrong, or not told, by the ranks of a host.

    A group is its members: those of the whole job may be those of its only dimension.
    """
    assert rank.page is not None
    assert rank.connection is not None
    found = candidates_of(
        (one.identity, told) for one in here if one.page is not None for told in one.page.communicators
    )
    communicators = {stream_of(one.slot, one.generation): found[one.hash] for one in rank.page.communicators}
    records = by_communicator(rank.connection.kernels)
    window = ClosedWindow(Boundary(1, 0, 1), records, rank.connection.names, np.empty(0, np.int64))
    seen = WindowSummariser().summarise(
        window, rank.identity, (), 100, ModeConfig(), communicators=communicators
    )
    right = wrong = untold = 0
    for duration, key in zip(records["duration_ns"].tolist(), stream_keys(records).tolist(), strict=True):
        if duration // 10**8 == NOBODYS:
            continue
        truth = rank.communicators[duration // 10**6 % 100][0]
        dimension = seen.dimensions.get(key)
        if dimension is None:
            untold += 1
        elif _peers(rank, dimension, ranks) == _peers(rank, "pp" if truth == PAIR else truth, ranks):
            assert seen.streams[key].startswith(f"nccl:{dimension}")
            right += 1
        else:
            wrong += 1
    return right, wrong, untold


def _peers(rank: Rank, dimension: str, ranks: list[Rank]) -> list[int]:
    (group,) = (group for group in _members(ranks, dimension) if rank in group)
    return [one.identity.rank for one in group]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(LAYOUTS)), ids=[str(layout) for layout in LAYOUTS])
def test_every_kernel_has_its_dimension_and_group(plain: Build, tmp_path: Path, number: int) -> None:
    """With the job on one host all of them; with two ranks a host some are not told, and none is wrong."""
    ranks = job(LAYOUTS[number])
    run(plain, tmp_path, ranks, shared=number % 2 == 0)
    for rank in ranks:
        right, wrong, untold = judge(rank, ranks, ranks)
        assert (wrong, untold) == (0, 0)
        pairs = sum(dimension == PAIR for dimension, *_ in rank.communicators)
        assert right == 4 * (3 * (len(rank.communicators) - pairs) + pairs)
    for first in range(0, len(ranks), 2):
        for rank in ranks[first : first + 2]:
            _, wrong, _ = judge(rank, ranks[first : first + 2], ranks)
            assert not wrong


@pytest.mark.slow
def test_without_nccl_s_word_a_stream_of_several_groups_has_none(plain: Build, tmp_path: Path) -> None:
    """The same kernels, all on one stream, as an exporter sees them that is told nothing more."""
    ranks = job(LAYOUTS[0])
    run(plain, tmp_path, ranks, shared=True)
    for rank in ranks:
        assert rank.connection is not None
        for batch in rank.connection.parts:
            batch["kilobytes"] = 0
        right, wrong, _ = judge(rank, ranks, ranks)
        assert (right, wrong) == (0, 0)
