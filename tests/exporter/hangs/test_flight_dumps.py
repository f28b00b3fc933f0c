"""What torch's flight recorder says in a hang reaches the store: of a job on gloo, and of killed ranks."""

from __future__ import annotations

import asyncio
import dataclasses
import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from argus_core import wire
from argus_core.log import Log
from argus_core.log_limiter import Failures
from argus_core.shared_page import PageReader, PageWriter
from argus_core.store import ObjectStore, StoreConfig, open_store
from argus_core.store.base import read
from argus_core.store.keys import DumpKey
from argus_exporter.config import ExporterConfig
from argus_exporter.hangs.flight_dumps import FlightDumps
from argus_exporter.place.topology import Identity
from argus_exporter.ranks.channels import Attachment
from argus_exporter.ranks.live import Clock, LivePage
from argus_exporter.ranks.rank_registry import RankRegistry
from argus_exporter.traces.config import TracesConfig
from argus_exporter.traces.service import TraceService
from argus_simulator.stack.ports import free_port
from exporter.exporter_process import Rank, config, exporter, scrape, value, wait_for
from training.jobs import environment

LIMIT_S = 60.0
MADE_NS = 1_795_244_623_456_000_000  # 2026-11-21 07:03:43.456 UTC
SAID = gzip.compress(b'{"entries": [{}]}')

JOB = """
import signal, torch, torch.distributed as dist
from argus_core import overdue
overdue._STALLED_S = 0.0  # certain after twice three seconds, not after a minute
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(9):
    if step == 8 and rank == 1: signal.pause()
    dist.all_reduce(torch.ones(3, 5))
    net(torch.ones(2, 8)).sum().backward()
    optimizer.step()
"""


def traced(tmp_path: Path) -> ExporterConfig:
    traces = TracesConfig(folder=tmp_path / "traces", store=StoreConfig(folder=tmp_path / "store"))
    return dataclasses.replace(config(tmp_path / "s"), traces=traces)


def dumps(store: ObjectStore) -> dict[int, dict[str, Any]]:
    """What the store has, by rank."""
    return {
        DumpKey.parse(item.key).rank: json.loads(gzip.decompress(read(store, item.key, 1 << 20)))
        for item in store.list()
    }


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(StoreConfig(folder=tmp_path / "store"))


@pytest.fixture
def job(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Three ranks, of which rank 1 stays away from the all-reduce of the 9th step."""
    shared = {
        "WORLD_SIZE": "3",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "ARGUS_JOB": "llm",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", JOB], env=environment(tmp_path / "s", RANK=str(rank), **shared)
        )
        for rank in range(3)
    ]
    yield ranks
    for rank in ranks:
        rank.kill()
        rank.wait()


@pytest.mark.torch
@pytest.mark.slow
def test_each_rank_of_a_job_that_hangs_leaves_a_dump(
    tmp_path: Path, store: ObjectStore, job: list[subprocess.Popen[bytes]]
) -> None:
    """While main threads hang. For a stopped process nobody waits; its dump comes when it goes on."""
    pytest.importorskip("torch")
    with exporter(traced(tmp_path)) as running:
        steps = "argus_iteration_last_step"
        wait_for(
            lambda: all(value(scrape(running.url), steps, rank=str(rank)) == 7 for rank in range(3)),
            "the last step of each rank",  # the first one has no begin
            LIMIT_S,
        )
        job[2].send_signal(signal.SIGSTOP)
        wait_for(lambda: dumps(store).keys() == {0, 1}, "two dumps", LIMIT_S)
        job[2].send_signal(signal.SIGCONT)
        wait_for(lambda: len(dumps(store)) == 3, "the dump of the one that was stopped", LIMIT_S)
        for rank in job:
            rank.kill()
        assert value(scrape(running.url), "argus_exporter_trace_windows_total", why="hang") == 3
        keys = [DumpKey.parse(item.key) for item in store.list()]
    assert [(key.training_job, key.rank, key.step, key.recorder) for key in keys] == [
        ("llm", rank, 8, "gloo") for rank in range(3)
    ]
    waits, behind, other = (dumps(store)[rank]["entries"] for rank in range(3))
    assert len(waits) == len(other) == len(behind) + 1
    last = waits[-1]
    assert (last["profiling_name"], last["input_sizes"], last["retired"]) == (
        "gloo:all_reduce",
        [[3, 5]],
        False,
    )
    assert last["process_group"] == ["0", "default_pg"]
    assert behind[-1]["retired"]


def hung(socket: Path) -> tuple[Rank, PageWriter]:
    """A rank that has a dump of its 5th step."""
    page = PageWriter()
    rank = Rank(socket, 1, page=page)
    assert page.dump(5, MADE_NS, {"nccl": SAID, "gloo": SAID})
    return rank, page


def names(store: ObjectStore) -> list[str]:
    return [item.key for item in store.list()]


EXPECTED = [
    f"job/2026-11-21/1/000000000005-000000000005-20261121T070343.456Z.flight-{name}.json.gz"
    for name in ("gloo", "nccl")
]


def test_a_rank_that_is_killed_leaves_its_dump(tmp_path: Path, store: ObjectStore) -> None:
    """Even where nobody had looked: its memory is the exporter's too."""
    with exporter(traced(tmp_path)) as running:
        rank, page = hung(running.socket)
        rank.link.flush()
        rank.link.abandon()
        page.close()
        wait_for(lambda: names(store) == EXPECTED, "both dumps")
        assert value(scrape(running.url), "argus_rank_up", rank="1") == 0
    assert read(store, EXPECTED[1], 1 << 20) == SAID


def test_a_new_exporter_finds_the_dump_and_makes_no_second_one(tmp_path: Path, store: ObjectStore) -> None:
    rank, page = hung(tmp_path / "s")
    for _ in range(2):
        with exporter(traced(tmp_path)) as running:
            wait_for(lambda: rank.link.flush() or rank.link.connected, "connected")
            wait_for(
                lambda: (
                    value(scrape(running.url), "argus_exporter_trace_uploads_total", result="success") == 2
                ),
                "both uploaded",
            )
        rank.link.abandon()
    assert names(store) == EXPECTED
    page.close()


def test_a_dump_waits_for_a_store_that_is_away(tmp_path: Path, store: ObjectStore) -> None:
    """Counted as traces are."""
    (tmp_path / "store").touch()
    with exporter(traced(tmp_path)) as running:
        rank, page = hung(running.socket)
        rank.link.flush()
        wait_for(
            lambda: (
                (value(scrape(running.url), "argus_exporter_trace_uploads_total", result="denied") or 0) > 0
            ),
            "a refusal",
        )
        outbox = "argus_exporter_trace_outbox_files"
        wait_for(lambda: value(scrape(running.url), outbox) == 2, "both dumps to wait")
        (tmp_path / "store").unlink()
        wait_for(lambda: names(store) == EXPECTED, "both dumps")
    page.close()


class Kept(list[str]):
    """In the place of the traces: the keys of what they are to keep."""

    async def keep(self, key: str, _content: bytes) -> None:
        self.append(key)


def test_a_rank_is_looked_at_while_it_stands_still_and_seldom() -> None:
    """One that goes on made its dump in a hang that has ended. One that floods us has a dump a minute."""
    now, kept, page = 1000.0, Kept(), PageWriter()
    ranks = RankRegistry(ExporterConfig(), clock=lambda: now)
    dumps = FlightDumps(ranks, cast(TraceService, kept), Failures(Log(__name__)))
    live = LivePage(PageReader(os.dup(page.fd)), Clock(0, 0))
    state = ranks.hello(Identity("job", 1, pid=7), Attachment(frozenset(wire.Channel), uid=0, pid=7), live)
    state.stepped(wire.Iteration(1, 0, 10**9, 1, 1.0, 1.0))
    page.dump(2, MADE_NS, {"nccl": SAID})
    counts = []
    for seconds in (2.0, 2.0, 0.0, 30.0, 31.0):
        now += seconds
        asyncio.run(dumps.look())
        counts.append(len(kept))
        if kept:
            page.dump(2, MADE_NS, {"nccl": SAID})
    assert counts == [0, 1, 1, 1, 2], "overdue after 3 s"
    page.close()
    state.close()
