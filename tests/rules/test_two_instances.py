"""A rank that moves to another host, and a job that ends, before a Prometheus that scrapes two exporters.

The exporter that lost a rank keeps its last series for five minutes, with `argus_rank_up` 0: the rank then
lives on two instances. Scrapes, evaluations and windows are those of the test profile.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import shutil
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from bench.servers import PrometheusServer

from rules.scenario import ROOT

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="prometheus is not on PATH (Debian: prometheus)"
    ),
]
RANKS, SLOW, MOVED = 4, 1, 0
STEPS = 4
"""A second."""
OVERLAP = 30.0
"""Seconds on two instances: five minutes, ten times as fast, are thirty."""
PATIENCE = 180.0
"""Seconds; a busy machine is slow."""
FIRING = 'ALERTS{alertstate="firing"}'


@dataclass
class Exporter:
    """A page of ranks; each counts from the moment at which it came here, until it leaves."""

    came: dict[int, float] = field(default_factory=dict)
    left: dict[int, float] = field(default_factory=dict)

    def page(self) -> str:
        lines: dict[str, list[str]] = {}

        def add(metric: str, value: float, **labels: object) -> None:
            pairs = ",".join(f'{name}="{text}"' for name, text in {"training_job": "a", **labels}.items())
            lines.setdefault(metric, []).append(f"{metric}{{{pairs}}} {value!r}")

        for rank, came in self.came.items():
            end = self.left.get(rank, time.time())
            steps = (end - came) * STEPS
            add("argus_rank_up", float(rank not in self.left), rank=rank)
            add("argus_rank_number", float(rank), rank=rank)
            if rank not in self.left:
                add("argus_rank_lead_number", float(rank), rank=rank)
            add("argus_group_expected_ranks", RANKS, rank=rank, group="dp")
            name = "argus_iteration_duration_seconds"
            for metric, value in (
                ("count", steps),
                ("sum", steps / STEPS),
                ("squared_total", steps / STEPS**2),
            ):
                add(f"{name}_{metric}", value, rank=rank)
            add("argus_iteration_window_min_seconds", 1 / STEPS, rank=rank)
            add("argus_iteration_window_max_seconds", 1 / STEPS, rank=rank)
            add("argus_iteration_last_timestamp_seconds", end, rank=rank)
            forward = 0.16 if rank == SLOW else 0.08
            for phase, kind, seconds in (
                ("forward", "compute", forward),
                ("all_reduce", "comm", 0.2 - forward),
            ):
                add("argus_phase_info", 1.0, rank=rank, phase=phase, kind=kind, waits="none")
                where = {"rank": rank, "phase": phase, "kind": kind, "group": "dp"}
                add("argus_phase_duration_seconds_count", steps, **where, source="event")
                add("argus_phase_duration_seconds_sum", steps * seconds, **where, source="event")
                add("argus_phase_window_max_seconds", seconds, **where)
            add("argus_collective_sequence", float(int(steps)), rank=rank, group="dp")
            add("argus_gc_pause_seconds_sum", 0.001 * steps, rank=rank, generation=2)
            add("argus_gc_pause_seconds_count", steps, rank=rank, generation=2)
        if self.came:
            last = max(self.left.get(rank, time.time()) for rank in self.came)
            add("argus_job_last_iteration_timestamp_seconds", last)
            add("argus_job_usual_iteration_seconds", 1 / STEPS)
        return "".join(f"{line}\n" for metric in lines.values() for line in metric)


@contextlib.contextmanager
def served(exporter: Exporter) -> Iterator[str]:
    """Its page over HTTP; gives host:port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = exporter.page().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def prometheus(folder: Path, targets: list[str]) -> Iterator[PrometheusServer]:
    """It scrapes the targets as often as the rules of the demo ask for."""
    server = PrometheusServer(folder, receiver=False, arguments=("--web.enable-lifecycle",)).start()
    try:
        config = {
            "global": {"scrape_interval": "1500ms", "evaluation_interval": "1500ms"},
            "rule_files": [str(ROOT / "rules/test/*.yaml")],
            "scrape_configs": [{"job_name": "argus", "static_configs": [{"targets": targets}]}],
        }
        server.configure(config)
        yield server
    finally:
        server.stop()


def broken_rules(server: PrometheusServer) -> list[str]:
    """Rules whose last evaluation failed, with the error."""
    with urllib.request.urlopen(f"{server.url}/api/v1/rules", timeout=20) as answer:
        groups = json.load(answer)["data"]["groups"]
    return [
        f"{rule['name']}: {rule['lastError']}"
        for group in groups
        for rule in group["rules"]
        if rule.get("lastError")
    ]


@dataclass
class Watch:
    """Looks at a server again and again: no rule may ever fail."""

    server: PrometheusServer
    fired: set[tuple[str, ...]] = field(default_factory=set)

    def look(self) -> set[tuple[str, ...]]:
        """The alerts that fire now, as (name, severity, rank)."""
        assert broken_rules(self.server) == []
        found = {
            (labels["alertname"], labels["severity"], labels.get("rank", ""))
            for labels, _ in self.server.query(FIRING, time.time())
        }
        self.fired |= found
        return found

    def until(self, done: Callable[[set[tuple[str, ...]]], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not done(self.look()):
            assert time.monotonic() < deadline, f"{what}: not within {PATIENCE:g} s"
            time.sleep(0.5)

    def for_seconds(self, seconds: float) -> None:
        """Whatever happens in this time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look()
            time.sleep(0.5)


def test_a_rank_on_two_instances_breaks_no_rule_and_a_finished_job_pages_nobody(tmp_path: Path) -> None:
    """The slow rank alone is paged, through the move too; and nobody is, once all said goodbye."""
    page = ("ArgusStragglerRank", "page", str(SLOW))
    first, second = Exporter(), Exporter()
    first.came = dict.fromkeys(range(RANKS), time.time())
    with (
        served(first) as one,
        served(second) as other,
        prometheus(tmp_path, [one, other]) as server,
    ):
        watch = Watch(server)
        watch.until(lambda fired: page in fired, "the slow rank is paged")

        # All processes begin anew, one of them on the other host.
        moment = time.time()
        first.left = {MOVED: moment}
        first.came |= dict.fromkeys((rank for rank in range(RANKS) if rank != MOVED), moment)
        second.came = {MOVED: moment}
        watch.for_seconds(OVERLAP)
        both = server.query(f'count by (training_job) (argus_rank_up{{rank="{MOVED}"}})', time.time())
        assert [value for _, value in both] == [2.0], "the rank lives on two instances"
        watch.until(lambda fired: page in fired, "the slow rank is still paged")
        first.came.pop(MOVED)
        watch.for_seconds(3)
        assert {alert for alert in watch.fired if alert[0] != "ArgusStragglerRank"} == set()

        watch.fired.clear()
        first.came, second.came = {}, {}
        watch.until(lambda fired: not fired, "the alerts of the finished job end")
        watch.fired.clear()
        watch.for_seconds(OVERLAP)
        assert watch.fired == set()
        assert server.query('{__name__=~"rank:argus_(verdict|phase).*"}', time.time()) == []
