"""NCCL's profiler plugin between two processes on one GPU: counts, order of events, and time of a callback.

In a dry run a fake host calls the plugin as NCCL would. A second plugin behind it writes all events down, so
the chain is proved too, and its files are fixtures. Kernels are to carry the communicator that launched them.
What the plugin adds to a step is for the step `overhead-nccl`; here callbacks are timed on the machine's
processor, with the fake host (`bench.nccl`).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from argus_core import nccl_page
from argus_core.injection import PROFILER
from argus_core.nccl_page import NcclPage, NcclPageReader
from argus_training.injector import library_path
from bench import nccl as bench_nccl
from bench.gpu_day import stand_ins, two_on_one
from bench.gpu_day.collector import Collector, collecting
from bench.gpu_day.observe import attached, line_of, start
from bench.gpu_day.result import NotRun
from bench.gpu_day.step import Day

_GROUP, _LAUNCH = 0x1, 0x800
_BATCHES: Final = 2000
_FAKE_ROUNDS: Final = 20
Events = Sequence[Mapping[str, Any]]


def run(day: Day) -> dict[str, Any]:
    built = stand_ins.build("argus_nccl", "fake_nccl", "nccl_app", "nccl_event_recorder")
    if day.dry:
        stand_ins.build("argus_cupti", "fake_cuda", "fake_cupti", "launch_app")
    recorder = built / "nccl" / "testing" / "libnccl_event_recorder.so"
    for path in _recorded(day):
        path.unlink()  # of a run before, whose events are not this one's
    told, kernels, counted = _faked(day, built, recorder) if day.dry else _real(day, recorder)
    day.reach(f"{len(told)} ranks called NCCL's operations")
    events = [_read(path) for path in _recorded(day)]
    day.reach(f"{sum(map(len, events))} events were written down behind the plugin")
    cost = bench_nccl.measure(built, 5, _BATCHES)
    return {
        "collectives_missing": sum(_missing(called, page) for called, page in told),
        "steps_of_the_network": min(_network_steps(page) for _, page in told),
        "interface": min(page.table for _, page in told),
        "nccl": max(page.nccl_version for _, page in told),
        "former_missing": sum(page.former != "chained" for _, page in told),
        "dropped": sum(page.dropped_events + page.unknown_events + page.stale_events for _, page in told),
        "launches_out_of_order": sum(map(out_of_order, events)),
        "events": sum(map(len, events)),
        "kernels": len(kernels),
        "kernels_with_communicator_ratio": sum(word != 0 for word in kernels) / max(len(kernels), 1),
        "kernels_counted_ratio": counted / max(len(kernels), 1),
        "step_ns_p99": cost["step_ns_p99"],
        "allocations": cost["allocations"],
        "locks": cost["locks"],
    }


def out_of_order(events: Events) -> int:
    """Groups of operations whose kernel was not launched just before, on that thread and communicator."""
    wrong = 0
    launched: dict[int, Mapping[str, Any] | None] = defaultdict(lambda: None)
    for event in events:
        if event["call"] != "s":
            continue
        if event["type"] == _LAUNCH:
            launched[event["thread"]] = event
        elif event["type"] == _GROUP:
            before = launched.pop(event["thread"], None)
            wrong += before is None or before["communicator"] != event["communicator"]
    return wrong


Told = list[tuple[dict[str, int], NcclPage]]
"""What each rank says that it called, and what the plugin has counted."""


def _real(day: Day, recorder: Path) -> tuple[Told, list[int], int]:
    if library_path(PROFILER) is None:
        raise NotRun(f"{PROFILER} is not installed: pip install the package with a C++ compiler")
    with collecting(day.work) as collector:
        ranks = []
        for rank in range(2):
            environment = attached(
                day,
                collector.path,
                rank,
                WORLD_SIZE="2",
                ARGUS_NCCL="1",
                ARGUS_NEXT_PROFILER=str(recorder),
                RECORD_NCCL_EVENTS=str(day.fixtures / f"nccl-events.{rank}.jsonl"),
                **two_on_one.environment(rank),
            )
            ranks.append(start(environment, "-m", "bench.gpu_day.nccl_ranks", str(day.work), stdin=True))
        try:
            told = [_rank_told(collector, number, one) for number, one in enumerate(ranks)]
        finally:
            for one in ranks:
                try:
                    print(one.communicate("", timeout=60)[1], end="", flush=True)
                except subprocess.TimeoutExpired:
                    one.kill()
        collector.wait_ended()
        pages = [one.nccl.read() for one in collector.connections if one.nccl]
        return told, _launched_by(collector), sum(map(_counted, pages))


def _launched_by(collector: Collector) -> list[int]:
    """Of each kernel of NCCL the word that says which communicator launched it; 0: nobody knows."""
    return [
        int(record["kilobytes"])
        for one in collector.with_kernels()
        for record in one.kernels
        if one.names.get(int(record["name_id"]), "").startswith("nccl")
    ]


def _rank_told(
    collector: Collector, rank: int, process: subprocess.Popen[str]
) -> tuple[dict[str, int], NcclPage]:
    """What a rank says that it called, and what the plugin has counted while it waits."""
    line = line_of(process, "{")
    if not line:
        raise RuntimeError(f"rank {rank} ended with status {process.wait()} before it had called all")
    collector.wait(lambda: any(one.hello.rank == rank and one.nccl for one in collector.connections))
    memory = [one.nccl for one in collector.connections if one.hello.rank == rank and one.nccl is not None]
    if not memory:
        raise RuntimeError(f"rank {rank} hands over no memory of {PROFILER}")
    return json.loads(line), memory[-1].read()


def _faked(day: Day, built: Path, recorder: Path) -> tuple[Told, list[int], int]:
    dump = day.work / "page"
    environment = {
        "PATH": os.environ["PATH"],
        "ARGUS_NCCL": "1",
        "ARGUS_NEXT_PROFILER": str(recorder),
        "RECORD_NCCL_EVENTS": str(day.fixtures / "nccl-events.0.jsonl"),
        "FAKE_NCCL_VERSION": "22809",
        "FAKE_PAGE_DUMP": str(dump),
    }
    program, library = built / "nccl" / "testing" / "nccl_app", built / "nccl" / PROFILER
    subprocess.run(
        [str(program), "5", str(library), "init:1", f"train:{_FAKE_ROUNDS}:2"], env=environment, check=True
    )
    functions = ("AllReduce", "AllGather", "ReduceScatter", "Send", "Recv")
    return [(dict.fromkeys(functions, _FAKE_ROUNDS), _page(dump))], *_faked_kernels(day, built, library)


def _page(dump: Path) -> NcclPage:
    memory = nccl_page.make()
    os.pwrite(memory, dump.read_bytes(), 0)
    reader = NcclPageReader(memory)
    page = reader.read()
    reader.close()
    return page


def _faked_kernels(day: Day, built: Path, library: Path) -> tuple[list[int], int]:
    """Both libraries in one process, between the fake NCCL and the fake CUPTI."""
    dump = day.work / "page-of-kernels"
    with collecting(day.work) as collector:
        environment = attached(
            day,
            collector.path,
            CUDA_INJECTION64_PATH=str(built / "injector" / "libargus_cupti.so"),
            ARGUS_NCCL="1",
            FAKE_NCCL_VERSION="22809",
            FAKE_PAGE_DUMP=str(dump),
        )
        program = built / "nccl" / "testing" / "launch_app"
        actions = ("cuda", "comm:0x10:0:2", "ready", f"train:{_FAKE_ROUNDS}", "read")
        subprocess.run([str(program), "5", str(library), *actions], env=environment, check=True)
        collector.wait(lambda: any(one.ended for one in collector.connections))  # heard only now, maybe
        return _launched_by(collector), _counted(_page(dump))


def _counted(page: NcclPage) -> int:
    """Kernels that are counted for the communicator that launched them."""
    return sum(operation.kernels for one in page.communicators for operation in one.operations)


def _missing(called: Mapping[str, int], page: NcclPage) -> int:
    """Operations that were called and not counted, or counted and not called."""
    counted: Counter[str] = Counter()
    for one in page.communicators:
        counted.update({operation.function: operation.count for operation in one.operations})
    return sum(abs(counted[name] - number) for name, number in called.items())


def _network_steps(page: NcclPage) -> int:
    return sum(sum(peer.steps) for one in page.communicators for peer in one.peers)


def _recorded(day: Day) -> Iterable[Path]:
    return sorted(day.fixtures.glob("nccl-events.*.jsonl"))


def _read(path: Path) -> Events:
    return [json.loads(line) for line in path.read_text().splitlines()]
