"""Jobs of half an hour, played through the shipped rules: what cards are made of.

`PYTHONPATH=tests:. python -m l3_worker.played_jobs > tests/l3_worker/cards.txt` writes the golden cards anew.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Final

import numpy as np

from argus_core.remote_write import Labels
from argus_l3_worker.cli import main
from argus_simulator.fast_play.evaluate import Evaluator
from argus_simulator.fast_play.rules import read_rules
from argus_simulator.fast_play.storage import STALE, Floats, Storage
from rules.jobs import BEGIN_MS, UNSEEN, Job, Series, Slow, slower

RULES: Final = sorted((Path(__file__).resolve().parents[2] / "rules").glob("argus.*.yaml"))
ONSET_S: Final = 840.0
END_S: Final = BEGIN_MS / 1000 + 1800.0
STOP_S: Final = 1600.0
ALL: Final = slice(None)


def takes(phase: str, seconds: float, rank: int | slice, more: float) -> Slow:
    """A phase more, which takes `more` seconds longer on a rank, or on several, from the onset on."""

    def slow(durations: dict[str, Floats], begins: Floats) -> None:
        durations[phase] = seconds * durations["data"] / durations["data"].mean()
        durations[phase][rank] += np.where(begins >= ONSET_S, more, 0.0)

    return slow


JOBS: Final = [
    Job("slow-rank", ranks=8, slow=slower(3, 1.5, ONSET_S)),
    Job("late-rank", ranks=8, slow=takes(UNSEEN, 0.02, 5, 0.4)),
    Job("data-stall", slow=slower(2, 20.0, ONSET_S, np.inf, "data")),
    Job(
        "suspect-set",
        ranks=16,
        waits="tp",
        sets={rank: f"tp:dp{rank // 4}" for rank in range(16)},
        slow=slower(slice(4, 8), 1.5, ONSET_S, np.inf, "forward", "backward"),
    ),
    Job("slow-link", ranks=16, groups=4, slow=takes("tp-allgather", 0.2, slice(4, 8), 0.3)),
    Job("regression", slow=slower(ALL, 1.5, ONSET_S)),
    Job("half-heard", expected=8, ranks=3, slow=slower(0, 2.5, ONSET_S)),
    Job("hang", stops_s=STOP_S),
    Job("hang-of-nobody", stops_s=STOP_S),
    Job("over", slow=slower(1, 1.8, ONSET_S, ONSET_S + 400)),
    Job("healthy"),
    Job("abstention", expected=8, ranks=3, slow=slower(0, 2.5, 0.0)),
]


def spans_of_the_hang() -> Series:
    """Rank 2 is in its loader, the others are in the collective."""
    at = BEGIN_MS + np.arange(int(STOP_S) + 15, 1830, 15, dtype=np.int64) * 1000
    found: Series = {}
    for rank in range(4):
        phase, kind = ("data", "host") if rank == 2 else ("dp-allreduce", "comm")
        labels = {"__name__": "argus_phase_open_timestamp_seconds", "training_job": "hang", "rank": str(rank)}
        values = np.append(np.full(len(at) - 1, BEGIN_MS / 1000 + STOP_S), STALE)
        found[
            tuple(
                sorted({**labels, "phase": phase, "kind": kind, "waits": "none", "overdue": "true"}.items())
            )
        ] = at, values
    return found


TWINS: Final = (
    Job("twins", cluster="x", slow=slower(2, 1.5, ONSET_S)),
    Job("twins", cluster="y"),
)


def later(series: Series, by_ms: int) -> Series:
    """The same, so much later; what is a time is later, too. Nothing is said of the end."""
    found: Series = {}
    for labels, (at, values) in series.items():
        moved = values.copy()
        if _is_time(labels):
            moved[~np.isnan(values)] += by_ms / 1000
        before = at < END_S * 1000
        found[labels] = at[before] + by_ms, moved[before]
    return found


def _is_time(labels: Labels) -> bool:
    return dict(labels)["__name__"].endswith("timestamp_seconds")


@contextmanager
def played(by_ms: int = 0) -> Iterator[str]:
    """URL of a Prometheus that holds these jobs, so much later, and what the rules say of them."""
    with tempfile.TemporaryDirectory() as folder, Storage(Path(folder)) as storage:
        for number, job in enumerate((*JOBS, *TWINS)):
            storage.write(later(replace(job, seed=number).series(), by_ms))
        storage.write(later(spans_of_the_hang(), by_ms))
        evaluator = Evaluator(storage, read_rules(RULES))
        evaluator.advance(BEGIN_MS + by_ms, round(END_S * 1000) + by_ms)
        assert not evaluator.failures
        yield storage.url


def explained(url: str, job: str, *options: str, at: float = END_S) -> tuple[int, str]:
    """Exit status of `explain`, and what it prints."""
    common = ["--prometheus.url", url, "--job", job, "--time", str(at), "--since", "1h"]
    with redirect_stdout(StringIO()) as said:
        status = main(["explain", *common, "--runbook-url", "https://runbooks/%s", *options])
    return status, said.getvalue()


def cards(url: str) -> str:
    """Of all jobs, with the exit status of each."""
    parts = []
    for job in JOBS:
        status, text = explained(url, job.name)
        parts.append(f"$ argus-l3-worker explain --job {job.name}    # exit {status}\n{text}")
    return "\n".join(parts)


if __name__ == "__main__":
    with played() as prometheus:
        sys.stdout.write(cards(prometheus))
