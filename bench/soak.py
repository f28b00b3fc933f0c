"""The whole stack while all that it watches comes and goes, and its own parts are killed.

    python -m bench.soak [--minutes 60] [--seed 0]

A round is a job of its own with kernels of its own, of which ranks leave and come back, and a peer that sends
garbage and half requests to every port. Eight times, at even distances, one part is killed outright and
started again, in turn: the exporter, the worker, Prometheus; and the store of traces is taken away and given
back. In the quiet after a round each part must be as it was in the first quiet of its life, which in a long
soak is once lost ranks are forgotten.

The last line is JSON. `fds_growth`, `rss_growth_mb`: the most that the exporter or the worker had more than
in that first quiet; a few descriptors are connections that a client keeps for its next request.
`series_growth`: likewise of the series on their pages that are of no job; `series_left`: the most that pages
and Prometheus had of jobs that were over for longer than lost ranks are remembered. `files_left`: requests,
traces and drafts that wait at the end in spool and outbox. `lost_uncounted`: kernel records and steps that
ranks sent to an exporter that lived and that it neither shows nor counts as dropped, steps that it neither
wrote remotely nor counts, and cycles that the worker calls delivered and Prometheus does not have.
`sent_not_written`: samples that a receiver refused or did not write, and requests that the spool dropped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import socket
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from argus_core import wire
from argus_core.link import Link
from argus_exporter.ranks.config import RanksConfig
from argus_simulator.stack import Stack, WaitTimeout, pace, wait_for
from argus_simulator.stack.processes import Server

PARTS: Final = ("exporter", "worker", "prometheus", "store")
_ROUND_S: Final = 1.0
_STEP_S: Final = 0.05
_RANKS: Final = 4
_KERNELS: Final = 8
# Of a soak: the exporter's and the worker's lives are half of it, longer than lost ranks are remembered.
_KILLS: Final = 8
# What a part may take to close what its peers have closed, and to deliver what it kept.
_CLOSES_S: Final = 2.0
_SETTLES_S: Final = 20.0
# A Prometheus that was killed does not know what has ended meanwhile: its lookback goes by, and some cycles.
_FORGETS_S: Final = pace.LOOKBACK_S + _SETTLES_S

Sample = tuple[str, dict[str, str], float]


class Rank:
    """A training process on the wire: steps with kernels, and how much it has said."""

    def __init__(self, path: Path, job: str, rank: int) -> None:
        self.job, self.rank = job, rank
        self.steps = self.kernels = 0
        hello = wire.hello(
            pid=os.getpid(),
            rank=rank,
            world_size=_RANKS,
            training_job=job,
            monotonic_ns=time.monotonic_ns(),
            realtime_ns=time.time_ns(),
            role="pp0.tp0",
            channels=(wire.Channel.PHASES, wire.Channel.KERNELS),
        )
        self.link = Link(path, lambda: hello, patience_s=2.0)

    def step(self, names: list[str]) -> None:
        self.steps += 1
        now = time.time_ns()
        for place, name in enumerate(names):
            self.link.add(
                wire.Kernel(
                    now - place * 10_000, 100_000 + self.steps % 7, -1, self.link.name_id(name), 7, 0, 0, 0
                )
            )
        self.kernels += len(names)
        seconds = _STEP_S * self.steps
        self.link.add(wire.Iteration(self.steps, now, 10**9 // 20, self.steps, seconds, seconds * _STEP_S))
        self.link.flush()


@dataclass
class Life:
    """One process of a part: when it was first seen, and what it held in the first quiet that counts."""

    pid: int
    since: float
    fds: int = 0
    rss_mb: float = 0.0
    series: int = 0


@dataclass
class Soak:
    """A stack, and what has been seen of it."""

    stack: Stack
    rng: random.Random
    say: Callable[[str], None]
    warm_s: float = 0.0
    rounds: int = 0
    fds_growth: int = 0
    rss_growth_mb: float = 0.0
    series_growth: int = 0
    series_left: int = 0
    steps: int = 0
    """Of ranks that an exporter had read all of, so that it owes them to Prometheus."""
    lost_uncounted: int = 0
    sent_not_written: int = 0
    cycles: int = 0
    lives: dict[str, Life] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    """When a job was over, on the monotonic clock."""

    def play(self, seconds: float) -> None:
        """Rounds for so long, and each part killed once at least."""
        _write_steps(self.stack)
        begun, killed = time.monotonic(), 0
        # What an exporter remembers of lost ranks is no growth.
        self.warm_s = min(RanksConfig.forget_seconds + _SETTLES_S, seconds / _KILLS)
        while killed < len(PARTS) or time.monotonic() < begun + seconds:
            self.round()
            if time.monotonic() >= begun + killed * seconds / _KILLS:
                self.kill(PARTS[killed % len(PARTS)])
                killed += 1
            self.rounds += 1
        self.round()
        self._count_writes()
        self._count_steps()

    def round(self) -> None:
        """A job of its own, garbage, and the quiet after it."""
        job = f"soak-{self.rounds}"
        self.say(f"round {self.rounds}")
        names = [f"kernel_{self.rounds}_{place}" for place in range(_KERNELS)]
        ranks = [Rank(self.stack.socket, job, rank) for rank in range(_RANKS)]
        with contextlib.ExitStack() as peers:
            for peer in self._garbage():
                peers.callback(peer.close)
            end, changed = time.monotonic() + _ROUND_S, False
            while time.monotonic() < end:
                for rank in ranks:
                    rank.step(names)
                if not changed and time.monotonic() > end - _ROUND_S / 2:
                    changed = True
                    self._compare(ranks[-1:])
                    ranks[-1].link.close(1)
                    ranks[-1] = Rank(self.stack.socket, f"{job}-again", _RANKS - 1)
                time.sleep(_STEP_S)
            self._compare(ranks)
        for rank in ranks:
            rank.link.close(0)
            self.ended[rank.job] = time.monotonic()
        self._quiet()

    def kill(self, part: str) -> None:
        """A part is gone for a while in which ranks go on."""
        self.say(f"{part} is killed")
        rank = Rank(self.stack.socket, f"outage-{self.rounds}", 0)

        def meanwhile() -> None:
            for _ in range(5):
                rank.step(["kernel"])
                time.sleep(_STEP_S)

        meanwhile()
        if part == "store":
            self._store_away(meanwhile)
        elif part == "exporter":
            self._count_steps()
            self.stack.restart(self.stack.exporter, meanwhile)
            # Totals travel with every step: a new exporter knows all of them after the next.
            connected = rank.link.connects
            wait_for(
                lambda: rank.link.connects > connected,
                _SETTLES_S,
                "the rank to be back",
                meanwhile=lambda: rank.step(["kernel"]),
            )
            self._compare([rank], kernels=False)
        elif part == "worker" and self.stack.l3_worker is not None:
            self._count_writes()
            self.stack.restart(self.stack.l3_worker, meanwhile)
        else:
            self.stack.restart(self.stack.prometheus, meanwhile)
        rank.link.close(0)

    def _store_away(self, meanwhile: Callable[[], None]) -> None:
        """A file in the place of the store's folder; traces are asked for meanwhile and wait."""
        store = self.stack.trace_store
        store.mkdir(exist_ok=True)
        kept = store.with_name("traces-away")
        store.rename(kept)
        store.touch()
        now = time.time()
        body = {"training_job": f"outage-{self.rounds}", "ranks": [0], "start": now - 5.0, "end": now}
        request = urllib.request.Request(
            f"{self.stack.exporter.url}/traces/request",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=10).close()
        meanwhile()
        store.unlink()
        kept.rename(store)

    # -- peers that nobody wants ----------------------------------------------------------------------------

    def _garbage(self) -> Iterator[socket.socket]:
        """Half packets and noise on the wire, half requests and noise on both ports of HTTP; left open."""
        packet = wire.pack_message(
            wire.MessageType.NAMES, wire.Name(1, wire.encode_name("half")).pack(), 1, 0, 0
        )
        for payload in (b"", packet[: len(packet) // 2], self.rng.randbytes(200), self.rng.randbytes(60_000)):
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with contextlib.suppress(OSError):
                peer.connect(str(self.stack.socket))
                if payload:
                    peer.send(payload)
            yield peer
        ports = [self.stack.exporter.port]
        if self.stack.l3_worker is not None:
            ports.append(self.stack.l3_worker.port)
        half = b"POST /traces/request HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"
        for port in ports:
            for payload in (b"", b"GET /metrics HT", half, self.rng.randbytes(500)):
                peer = socket.socket()
                with contextlib.suppress(OSError):
                    peer.connect(("127.0.0.1", port))
                    peer.send(payload)
                yield peer

    # -- what is counted ------------------------------------------------------------------------------------

    def _compare(self, ranks: list[Rank], kernels: bool = True) -> None:
        """What ranks have said against what the exporter shows of them, once it has read all."""

        def missing() -> int:
            page = list(samples(self.stack.exporter.url))
            lost = 0
            for rank in ranks:
                where = {"training_job": rank.job, "rank": str(rank.rank)}
                shown = total(page, "argus_iteration_duration_seconds_count", **where)
                lost += max(0, rank.steps - round(shown))
                if kernels:
                    seen = total(page, "argus_records_total", channel="kernels", **where)
                    counted = total(page, "argus_records_dropped_total", channel="kernels", **where)
                    lost += max(0, rank.kernels - round(seen + counted))
            return lost

        self.steps += sum(rank.steps for rank in ranks) if kernels else 0
        with contextlib.suppress(WaitTimeout):
            wait_for(lambda: missing() == 0, _SETTLES_S / 4, "the exporter to have read all")
            return
        self.lost_uncounted += missing()

    def _quiet(self) -> None:
        """All peers are gone: each part must come back to what it was."""
        for part, server in self._watched():
            pid = server.child.pid
            life = self.lives.get(part)
            if life is None or life.pid != pid:
                life = self.lives[part] = Life(pid, time.monotonic())
            if not life.fds:
                if time.monotonic() >= life.since + self.warm_s:
                    life.fds, life.rss_mb, life.series = fds(pid), rss_mb(pid), _of_no_job(server.url)
                continue
            with contextlib.suppress(WaitTimeout):
                wait_for(partial(_as_before, life), _CLOSES_S, f"descriptors of the {part}")
            self.fds_growth = max(self.fds_growth, fds(pid) - life.fds)
            self.rss_growth_mb = max(self.rss_growth_mb, rss_mb(pid) - life.rss_mb)
            self.series_growth = max(self.series_growth, _of_no_job(server.url) - life.series)
        self._look_for_the_past()

    def _watched(self) -> Iterator[tuple[str, Server]]:
        assert self.stack.l3_worker is not None
        yield from (("exporter", self.stack.exporter), ("worker", self.stack.l3_worker))

    def _look_for_the_past(self) -> None:
        """Series of jobs that nobody remembers any more."""
        until = time.monotonic() - RanksConfig.forget_seconds - _SETTLES_S
        past = {job for job, ended in self.ended.items() if ended < until}

        def left() -> list[str]:
            stored = self.stack.query('{__name__=~"argus_.*", training_job!=""}')
            shown = [(name, of) for _, server in self._watched() for name, of, _ in samples(server.url)]
            series = [*shown, *((of["__name__"], of) for of, _ in stored)]
            return [name for name, of in series if of.get("training_job") in past]

        if past:
            with contextlib.suppress(WaitTimeout):
                wait_for(lambda: not left(), _FORGETS_S, "jobs to be forgotten")
                return
            names = left()
            self.series_left = max(self.series_left, len(names))
            self.say(f"left of jobs that are over: {', '.join(sorted(set(names)))}")

    def _count_writes(self) -> None:
        """Once all that the worker keeps is delivered: what it sent against what was written."""
        assert self.stack.l3_worker is not None
        url = self.stack.l3_worker.url
        with contextlib.suppress(WaitTimeout):
            spooled = "argus_l3_worker_spooled_requests"
            wait_for(lambda: total(samples(url), spooled) == 0, _SETTLES_S, "the spool to be empty")
        page = list(samples(url))
        for result in ("refused", "unwritten"):
            self.sent_not_written += round(total(page, "argus_l3_worker_samples_total", result=result))
        self.sent_not_written += round(total(page, "argus_l3_worker_spool_dropped_requests_total"))
        self.cycles += round(total(page, "argus_l3_worker_cycles_total", result="success"))
        stored = self.stack.query("count_over_time(argus_l3_last_success_timestamp_seconds[1d])")
        self.lost_uncounted += max(0, self.cycles - round(sum(value for _, value in stored)))

    def _count_steps(self) -> None:
        """What the exporter owes to Prometheus, against what is there."""

        def missing() -> int:
            stored = self.stack.query(
                'sum(count_over_time(argus_iteration_seconds{training_job=~"soak-.*"}[1d]))'
            )
            page = list(samples(self.stack.exporter.url))
            reasons = ("remote_write_queue", "remote_write_refused", "remote_write_order")
            counted = sum(total(page, "argus_records_dropped_total", reason=reason) for reason in reasons)
            counted += total(page, "argus_exporter_remote_write_lost_samples_total")
            return self.steps - round(sum(value for _, value in stored) + counted)

        with contextlib.suppress(WaitTimeout):
            wait_for(lambda: missing() <= 0, 2 * _SETTLES_S, "steps to be written")
            return
        self.lost_uncounted += missing()

    def files_left(self) -> int:
        """Undelivered requests, traces that wait, and drafts, once what can be delivered is."""

        def waiting() -> list[Path]:
            # Not `rglob`, which ends where a folder goes while it looks, as those of lost ranks do.
            folders = os.walk(self.stack.folder)
            files = (Path(folder, name) for folder, _, names in folders for name in names)
            ends = (".tmp", ".draft", ".rw")
            return [path for path in files if path.suffix in ends or "outbox" in path.parts]

        with contextlib.suppress(WaitTimeout):
            wait_for(lambda: not waiting(), _SETTLES_S, "what waits to be delivered")
        return len(waiting())


def samples(url: str) -> Iterator[Sample]:
    """Of a metrics page."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            yield one.name, one.labels, one.value


def total(page: Iterator[Sample] | list[Sample], name: str, **labels: str) -> float:
    """Sum of the series that have these labels."""
    return sum(
        value
        for found, of, value in page
        if found == name and all(of.get(key) == wanted for key, wanted in labels.items())
    )


def _write_steps(stack: Stack) -> None:
    """Have the exporter write each step to Prometheus, as it is not told to when it starts."""
    with (stack.folder / "exporter.yml").open("a") as config:
        config.write(f"remote_write: {{url: '{stack.prometheus.url}/api/v1/write'}}\n")
    os.kill(stack.exporter.child.pid, signal.SIGHUP)


def _traces_stored(stack: Stack) -> int:
    """Those that were asked for while the store was away."""
    return sum(len(names) for _, _, names in os.walk(stack.trace_store))


def _of_no_job(url: str) -> int:
    return sum("training_job" not in labels for _, labels, _ in samples(url))


def _as_before(life: Life) -> bool:
    return fds(life.pid) <= life.fds


def fds(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def rss_mb(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def soak(minutes: float, seed: int, say: Callable[[str], None]) -> dict[str, float]:
    """Play for so long, and at least until each part was killed once."""
    with Stack() as stack:
        played = Soak(stack, random.Random(seed), say)
        played.play(60.0 * minutes)
        return {
            "rounds": played.rounds,
            "cycles": played.cycles,
            "fds_growth": played.fds_growth,
            "rss_growth_mb": round(played.rss_growth_mb, 1),
            "series_growth": played.series_growth,
            "series_left": played.series_left,
            "steps_written": played.steps,
            "files_left": played.files_left(),
            "traces_stored": _traces_stored(stack),
            "lost_uncounted": played.lost_uncounted,
            "sent_not_written": played.sent_not_written,
        }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)

    def say(text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    print(json.dumps(soak(options.minutes, options.seed, say)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
