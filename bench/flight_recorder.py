"""What a look at torch's flight recorder costs a process whose iteration is overdue: 2,000 entries of gloo.

    python -m bench.flight_recorder [--rounds N]

A thread that does nothing but look at the time says how long it was kept from the GIL: while entries are
listed by torch's control plane, by the function beside it, while all of them are dumped in both ways, and, to
know the machine, while nobody does anything.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Final

from argus_training.flight_recorder import FlightRecorder

_ENTRIES: Final = 2000
_LOOKS: Final = 200


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=12)
    rounds = parser.parse_args().rounds

    import torch
    from torch._C import _distributed_c10d

    distributed = torch.distributed
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    for _ in range(_ENTRIES):
        distributed.all_reduce(torch.ones(1))
    recorder = FlightRecorder(_distributed_c10d, _fail)
    name = "_dump_fr_trace_json"
    by_function = FlightRecorder(SimpleNamespace(**{name: getattr(_distributed_c10d, name)}), _fail)
    recorder.list_entries({"gloo"})

    def look() -> object:
        return recorder.last(recorder.status({"gloo"}), {"0": "world"})

    ways = {
        "nobody": lambda: time.sleep(0.05),
        "control_plane": lambda: recorder.list_entries({"gloo"}),
        "function": lambda: by_function.list_entries({"gloo"}),
        "dump_control_plane": lambda: recorder.dump({"gloo"}),
        "dump_function": lambda: by_function.dump({"gloo"}),
    }
    taken: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, act in ways.items():
            taken[way].append(_kept_from_others(act))
    found = {"look_us": round(_seconds(lambda: [look() for _ in range(_LOOKS)]) / _LOOKS * 1e6, 1)}
    for way, pairs in taken.items():
        lasted, longest = (statistics.median(of) * 1e3 for of in zip(*pairs, strict=True))
        found |= {f"{way}_ms": round(lasted, 1), f"{way}_longest_ms": round(longest, 1)}
    found["dump_bytes"] = len(recorder.dump({"gloo"})["gloo"])
    print(json.dumps(found))


def _kept_from_others(act: Callable[[], object]) -> tuple[float, float]:
    """How long it takes, and the longest time that another thread did not run meanwhile; seconds."""
    longest, running = 0.0, True

    def watch() -> None:
        nonlocal longest
        last = time.perf_counter()
        while running:
            now = time.perf_counter()
            longest, last = max(longest, now - last), now

    thread = threading.Thread(target=watch)
    thread.start()
    lasted = _seconds(act)
    running = False
    thread.join()
    return lasted, longest


def _seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _fail(error: Exception) -> None:
    raise error


if __name__ == "__main__":
    main()
