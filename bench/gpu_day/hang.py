"""A hang of two ranks on one GPU: counts of collectives beside torch's flight recorder."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from argus_core.shared_page import CollectiveSequence
from bench.gpu_day import two_on_one
from bench.gpu_day.collector import Collector, collecting
from bench.gpu_day.flight import last_collective
from bench.gpu_day.observe import attached, line_of, start
from bench.gpu_day.step import Day

_VARIABLES: Final = {
    # In a ring each rank needs data of the other that follow its own; the root of a tree may end alone.
    "NCCL_ALGO": "Ring",
    # Before torch 2.11 it is off where nobody asks for it.
    "TORCH_FR_BUFFER_SIZE": "2000",
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
}
_RECORDED_S: Final = 60.0
_COUNTED_S: Final = 20.0
"""What C++ calls is counted about once a second."""


@contextlib.contextmanager
def hanging(day: Day, how: str, **more: str) -> Iterator[tuple[Collector, list[subprocess.Popen[str]]]]:
    """Two ranks that have trained, with pages that have all of it; at FOLDER/call they hang.

    In a way of `bench.gpu_day.two_ranks`.

    Args:
        more: variables beside those that put both on one GPU.

    Raises:
        RuntimeError: one of them ended before, or its page lacks collectives of the training.
    """
    with collecting(day.work) as collector:
        ranks = [
            start(
                attached(
                    day,
                    collector.path,
                    rank,
                    WORLD_SIZE="2",
                    **two_on_one.environment(rank),
                    **_VARIABLES,
                    **more,
                ),
                *("-m", "bench.gpu_day.two_ranks", str(day.work), how),
            )
            for rank in range(2)
        ]
        try:
            recorded = [_trained(one) for one in ranks]
            # A count that comes later would be taken for the call in which they hang.
            if not collector.wait(lambda: counted(collector) == recorded, _COUNTED_S):
                raise RuntimeError(f"the pages say {counted(collector)} collectives, the recorder {recorded}")
            day.reach(f"both ranks trained: collectives {recorded}")
            yield collector, ranks
        finally:
            for one in ranks:
                one.kill()
                print(one.communicate()[1], end="", flush=True)


def run(day: Day) -> dict[str, Any]:
    with hanging(day, "away") as (collector, ranks):
        return _measured(day, collector, ranks)


def _measured(day: Day, collector: Collector, ranks: list[subprocess.Popen[str]]) -> dict[str, Any]:
    limit = time.monotonic() + _RECORDED_S
    (day.work / "call").touch()
    collector.wait(lambda: behind(collector) == 1, _COUNTED_S)
    (day.work / "ask").touch()
    recorded = [day.work / f"recorder.{rank}.json" for rank in range(2)]
    if not collector.wait(lambda: all(path.exists() for path in recorded), limit - time.monotonic()):
        raise RuntimeError("the flight recorder did not answer while a rank hung")
    texts = [path.read_text() for path in recorded]
    last = [last_collective(text) for text in texts]
    pages = counted(collector)
    for path in recorded:
        _keep(day, path)
    return {
        "behind": behind(collector),
        "behind_recorded": last[0] - last[1],
        "entries": min(len(json.loads(text).get("entries", [])) for text in texts),
        "counted": pages,
        "recorded": last,
        "counted_off": max(abs(one - other) for one, other in zip(pages, last, strict=True)),
        "ended": sum(one.poll() is not None for one in ranks),
    }


def behind(collector: Collector) -> int:
    """How many collectives the second rank has called less, by their pages."""
    first, second = counted(collector)
    return first - second


def counted(collector: Collector) -> list[int]:
    """The number of each rank's last collective, by its page; 0: there is none."""
    found = [last_of(collector, rank) for rank in range(2)]
    return [one.number if one is not None else 0 for one in found]


def _trained(rank: subprocess.Popen[str]) -> int:
    """Waits until a rank has trained: the number of its last collective."""
    words = line_of(rank, "trained").split()
    if not words:
        raise RuntimeError(f"a rank ended with status {rank.wait()} before it had trained")
    return int(words[1])


def last_of(collector: Collector, rank: int) -> CollectiveSequence | None:
    """Of the collectives of the whole job, by the page that the rank shares with the exporter."""
    pages = [one.page for one in collector.connections if one.hello.rank == rank and one.page is not None]
    return next((one for page in pages for one in page.read().collectives if one.group == "world"), None)


def _keep(day: Day, path: Path) -> None:
    kept = day.fixtures / f"flight-{path.name}"
    shutil.copyfile(path, kept)
    day.reach(f"kept {kept.name}, {kept.stat().st_size} bytes")
