"""What the shipped rules tell of recorded programs and of their twins, in virtual time.

A recording is a few seconds long, and the rules look at minutes: its shortest iteration of each half is
repeated, as many times as slow as makes the even one as long as the twin's.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from argus_core import wire
from argus_core.shared_page import PageWriter
from argus_exporter.place.topology_file import Topology as Places
from argus_simulator.fast_play.alerts import Spell
from argus_simulator.fast_play.delivery import Delivery
from argus_simulator.fast_play.evaluate import Evaluator
from argus_simulator.fast_play.history import Clock, Host, InProcess, Series, instance_of, record
from argus_simulator.fast_play.rules import read_rules
from argus_simulator.fast_play.storage import Storage
from simulator.twins.twin import STEP_S, Twin

ROOT: Final = Path(__file__).resolve().parents[3]
BEGIN_MS: Final = 1_700_000_000_000
EVEN, UNEVEN = 150, 150
"""Iterations of each half: five minutes, and somewhat more."""

Told = set[tuple[str, str, str]]
"""Alert, cause and rank of the pages: what somebody acts on."""


def told(twins: Sequence[Twin]) -> Mapping[tuple[str, str], Told]:
    """By program, and whether it is the real one or the simulated."""
    jobs: dict[tuple[str, str], str] = {}
    with tempfile.TemporaryDirectory(prefix="argus-twins-") as folder, Storage(Path(folder)) as storage:
        end_ms = BEGIN_MS
        for number, twin in enumerate(twins):
            jobs[twin.program, "real"], jobs[twin.program, "simulated"] = f"real-{number}", f"twin-{number}"
            series, ended_ms = repeated(twin, f"real-{number}")
            storage.write(series)
            played = record(
                twin.scenario(onset_step=EVEN),
                f"twin-{number}",
                BEGIN_MS * 1_000_000,
                3600.0,
                steps=EVEN + UNEVEN,
            )
            storage.write(played.series)
            end_ms = max(end_ms, ended_ms, played.end_ms)
        evaluator = Evaluator(storage, read_rules(sorted((ROOT / "rules").glob("*.yaml"))))
        evaluator.advance(BEGIN_MS, end_ms)
        assert evaluator.failures == {}
        spells = evaluator.spells()
    return {key: _told(spells, job) for key, job in jobs.items()}


def _told(spells: Sequence[Spell], job: str) -> Told:
    own = [spell for spell in spells if ("training_job", job) in spell.labels]
    found = Delivery(ROOT / "alertmanager" / "alertmanager.yaml").notifications(own)
    return {
        (one.labels["alertname"], one.labels.get("cause", ""), one.labels.get("rank", ""))
        for one in found
        if one.status == "firing" and one.labels["severity"] == "page"
    }


def repeated(twin: Twin, training_job: str) -> tuple[Series, int]:
    """What would have been scraped from the recorded program, and when it ended (Unix ms)."""
    recorded = twin.recorded
    clock = Clock(BEGIN_MS * 1_000_000)
    host = Host(clock, instance_of(training_job, 0), 0, Places({}))
    ranks = [_Rank(twin, training_job, rank, host, clock) for rank in range(len(recorded["even"]))]
    pace = STEP_S / max(rank["seconds"] for rank in recorded["even"])
    for step in range(EVEN + UNEVEN):
        half = recorded["even" if step < EVEN else "uneven"]
        seconds = pace * max(rank["seconds"] for rank in half)
        until = clock.now_ns + round(seconds * 1e9)
        while host.due_ms * 1_000_000 <= until:
            clock.now_ns = max(clock.now_ns, host.due_ms * 1_000_000)
            host.scrape()
        clock.now_ns = until
        for rank, of in zip(ranks, half, strict=True):
            rank.step(step, seconds, pace, of["phases"])
    for rank in ranks:
        rank.close()
    return host.series(), clock.now_ns // 1_000_000


class _Rank:
    """A recorded rank, as it reports to its exporter."""

    def __init__(self, twin: Twin, training_job: str, rank: int, host: Host, clock: Clock) -> None:
        self._clock, self._count, self._seconds, self._squared = clock, 0, 0.0, 0.0
        self._page = PageWriter()
        place: Mapping[str, Any] = twin.recorded["layout"][rank]
        self._groups = {one["phase"]: one["group"] for one in twin.recorded["signals"]}
        self._link = InProcess(
            host.ranks,
            lambda: wire.hello(
                pid=os.getpid(),
                rank=rank,
                training_job=training_job,
                monotonic_ns=clock.unix(),
                realtime_ns=clock.unix(),
                local_rank=rank,
                world_size=len(twin.recorded["layout"]),
                coordinates=place["coordinates"],
                sizes=place["sizes"],
                node="host-0",
                gpu_uuid=f"GPU-{rank:08x}-0000-4000-8000-{rank:012x}",
                role=place["role"],
                shares_page=True,
            ),
            self._page.fd,
        )
        self._link.add(wire.ActivityChange(clock.unix(), wire.Activity.TRAIN))
        for one in twin.recorded["signals"]:
            kind = wire.Kind[one["kind"].upper()]
            self._link.add(wire.PhaseInfo(self._link.name_id(one["phase"]), kind, _mask(one["waits"])))

    def step(self, step: int, seconds: float, pace: float, phases: Mapping[str, Mapping[str, float]]) -> None:
        """An iteration that has ended now: its phases one after the other, each span as long as the next."""
        self._page.step(step)
        self._count += 1
        self._seconds += seconds
        self._squared += seconds * seconds
        begin_ns = self._clock.unix() - round(seconds * 1e9)
        for name, of in phases.items():
            phase, _, kind = name.partition(" ")
            group = self._groups.get(phase, "")
            for _ in range(int(of["spans"])):
                duration_ns = round(pace * of["seconds"] / of["spans"] * 1e9)
                self._link.add(
                    wire.Span(
                        begin_ns,
                        duration_ns,
                        step,
                        self._link.name_id(phase),
                        self._link.name_id(group) if group else 0,
                        wire.Kind[kind.upper()],
                        wire.Source.HOST,
                        0,
                    )
                )
                begin_ns += duration_ns
        now = self._clock.unix()
        self._link.add(
            wire.Iteration(step, now, round(seconds * 1e9), self._count, self._seconds, self._squared)
        )
        self._link.flush()

    def close(self) -> None:
        self._link.close(0)
        self._page.close()


def _mask(waits: str) -> int:
    if waits == "unknown":
        return wire.WAITS_UNKNOWN
    return 0 if waits == "none" else wire.waits_mask(waits.split(","))
