"""Runs inputs one after another in a child and tells their cost: exceptions, hangs, memory, descriptors."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from bench.fuzz.mutate import Mutator
from bench.fuzz.targets import TARGETS

HANG_S: Final = 20.0
"""No input takes 1 s on an idle machine; this one may be busy."""
_WARM_UP: Final = 0.2
"""Share of the inputs after which memory is compared: caches and arenas are full by then."""


@dataclass(frozen=True)
class Outcome:
    """What one child saw.

    Attributes:
        usable: share of the inputs that were read to their end: the rest was refused on the way.
        crash: the exception, and the file that holds its input; empty: none.
    """

    target: str
    inputs: int
    usable: float
    seconds: float
    slowest_s: float
    rss_growth_mb: float
    descriptors_left: int
    crash: str


class Hang(BaseException):
    """Not an Exception: nothing may swallow it."""


def run(name: str, inputs: int, seed: int, crashes: Path) -> Outcome:
    """Feed `inputs` mutants to a target; stops at the first that breaks it."""
    logging.disable(logging.CRITICAL)
    target = TARGETS[name]
    mutator = Mutator(target.seeds(), seed, is_text=target.is_text)
    signal.signal(signal.SIGALRM, _hang)
    for clean in target.seeds():
        target.run(clean)
    descriptors = _descriptors()
    warm = max(1, int(inputs * _WARM_UP))
    rss_warm, slowest, done, usable = 0.0, 0.0, 0, 0
    began = time.monotonic()
    crash = ""
    while done < inputs and not crash:
        data = mutator.next()
        signal.setitimer(signal.ITIMER_REAL, HANG_S)
        started = time.monotonic()
        try:
            usable += target.run(data)
        except (Exception, Hang) as error:
            kept = crashes / f"argus-fuzz-{name}-{seed}-{done}"
            kept.write_bytes(data)
            crash = f"{type(error).__name__}: {str(error)[:300]} (input: {kept})"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        slowest = max(slowest, time.monotonic() - started)
        done += 1
        if done == warm:
            rss_warm = _rss_mb()
    return Outcome(
        target=name,
        inputs=done,
        usable=round(usable / done, 3),
        seconds=round(time.monotonic() - began, 1),
        slowest_s=round(slowest, 3),
        rss_growth_mb=round(_rss_mb() - rss_warm, 1) if rss_warm else 0.0,
        descriptors_left=_descriptors() - descriptors,
        crash=crash,
    )


def _hang(_number: int, _frame: FrameType | None) -> None:
    raise Hang(f"an input took longer than {HANG_S:g} s")


def _rss_mb() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _descriptors() -> int:
    gc.collect()
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


if __name__ == "__main__":
    print(json.dumps(asdict(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])))))
