"""The exporter as its scraper sees it: series come and go with the ranks, in every format."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import socket
import subprocess
import sys
import urllib.error
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from argus_core import wire
from argus_core.catalogue import SAMPLE_NAMES
from argus_exporter.errors import ArgusExporterError
from argus_exporter.publish.config import WebConfig
from argus_exporter.publish.web_listener import WebListener, listeners
from argus_exporter.server import RunningExporter
from exporter.exporter_process import Rank, config, exporter, get, scrape, value, wait_for


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "exporter.sock"


def test_iterations_and_phases_of_a_rank_appear(running: RunningExporter):
    """Totals are the producer's; phases are summed; the group and its size are resolved."""
    rank = Rank(running.socket, 1)
    for _ in range(3):
        rank.iterate(seconds=0.2)
    wait_for(
        lambda: value(scrape(running.url), "argus_iteration_last_step", rank="1") == 3, "three iterations"
    )
    samples = scrape(running.url)
    assert value(samples, "argus_iteration_duration_seconds_sum", rank="1") == pytest.approx(0.6)
    squared = value(samples, "argus_iteration_duration_seconds_squared_total", rank="1")
    assert squared == pytest.approx(0.12)
    assert value(samples, "argus_iteration_window_max_seconds", rank="1") == pytest.approx(0.2)
    labels = {"rank": "1", "phase": "forward", "kind": "compute", "group": "dp", "source": "host"}
    assert value(samples, "argus_phase_duration_seconds_count", **labels) == 3
    assert value(samples, "argus_phase_duration_seconds_sum", **labels) == pytest.approx(0.3)
    assert value(samples, "argus_group_expected_ranks", rank="1", group="dp") == 2


def test_every_published_name_is_in_the_catalogue(running: RunningExporter):
    """Nothing of ours is exposed that the catalogue does not explain."""
    rank = Rank(running.socket, 0)
    rank.iterate(kernels=10)
    wait_for(lambda: value(scrape(running.url), "argus_rank_up", rank="0") == 1, "rank 0")
    names = {name for name, _ in scrape(running.url) if name.startswith("argus_")}
    assert names <= SAMPLE_NAMES


def test_a_rank_that_says_bye_leaves_and_one_that_does_not_is_lost(running: RunningExporter):
    """Only a rank that vanished stays visible, with argus_rank_up 0."""
    leaver, victim = Rank(running.socket, 0), Rank(running.socket, 1)
    for rank in (leaver, victim):
        rank.iterate()
    wait_for(lambda: value(scrape(running.url), "argus_rank_up", rank="1") == 1, "both connected")
    leaver.link.close(exit_status=0)
    victim.link.close()
    wait_for(lambda: value(scrape(running.url), "argus_rank_up", rank="1") == 0, "rank 1 lost")
    assert value(scrape(running.url), "argus_rank_up", rank="0") is None


def test_a_lost_rank_that_comes_back_keeps_its_totals(running: RunningExporter):
    """A reconnect is not a new rank: phase counters go on."""
    rank = Rank(running.socket, 0)
    rank.iterate()
    rank.link.close()
    wait_for(lambda: value(scrape(running.url), "argus_rank_up", rank="0") == 0, "rank 0 lost")
    rank.iterate()
    wait_for(lambda: value(scrape(running.url), "argus_rank_up", rank="0") == 1, "rank 0 back")
    count = "argus_phase_duration_seconds_count"
    wait_for(lambda: value(scrape(running.url), count, rank="0") == 2, "counter went on")


def test_kernel_modes_of_a_complete_window_appear_with_their_step(path: Path):
    """A window ends at a step divisible by its length; the first, partial one is not published."""
    with exporter(config(path, seconds=0.4)) as running:
        rank = Rank(path, 0)
        for _ in range(16):
            rank.iterate(seconds=0.1, kernels=20)
        wait_for(
            lambda: value(scrape(running.url), "argus_kernel_window_last_step", rank="0") == 16,
            "the window that ends at step 16",
        )
        samples = scrape(running.url)
        assert value(samples, "argus_kernel_window_steps", rank="0") == 4
        labels = {"rank": "0", "kernel": "gemm", "stream": "compute0"}
        assert value(samples, "argus_kernel_mode_events", **labels) == 80
        assert value(samples, "argus_kernel_mode_p50_seconds", **labels) == pytest.approx(50e-6, rel=1e-3)
        assert value(samples, "argus_kernel_coverage_ratio", rank="0") == 1


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("listen_address", [":0", *(["[::1]:0"] if has_ipv6() else [])])
def test_the_address_that_is_told_is_one_that_answers(
    path: Path, monkeypatch: pytest.MonkeyPatch, listen_address: str
):
    """With port 0 IPv4 and IPv6 have two ports, in any order: the one that is said goes with its address."""

    async def ipv6_first(host: str | None, port: int) -> list[WebListener]:
        return sorted(await listeners(host, port), key=lambda bound: bound.family, reverse=True)

    monkeypatch.setattr("argus_exporter.server.listeners", ipv6_first)
    with exporter(dataclasses.replace(config(path), web=WebConfig(listen_address))) as running:
        assert get(f"{running.url}/healthz")[1] == b"ok\n"


def test_openmetrics_is_served_to_who_asks_for_it(running: RunningExporter):
    """prometheus_client's strict parser accepts it."""
    rank = Rank(running.socket, 0)
    rank.iterate(kernels=5)
    wait_for(lambda: value(scrape(running.url), "argus_rank_up", rank="0") == 1, "rank 0")
    content_type, body = get(f"{running.url}/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert "argus_rank_up" in {family.name for family in parse_openmetrics(body.decode())}


@pytest.mark.parametrize("version", ["foo", "1.0.0;escaping=bogus", ";;="])
def test_a_format_that_does_not_exist_is_the_classic_one(running: RunningExporter, version: str):
    """Whoever asks has an answer."""
    _, body = get(f"{running.url}/metrics", Accept=f"application/openmetrics-text;version={version}")
    assert b"argus_exporter_build_info" in body


def test_promtool_finds_nothing_to_complain_about(running: RunningExporter):
    """The classic format passes the linter, with ranks and without."""
    rank = Rank(running.socket, 0)
    for _ in range(2):
        _, body = get(f"{running.url}/metrics")
        lint = subprocess.run(["promtool", "check", "metrics"], input=body, capture_output=True, check=False)
        ours = [line for line in lint.stderr.decode().splitlines() if line.startswith("argus_")]
        assert ours == []
        rank.iterate(kernels=5)
        wait_for(lambda: value(scrape(running.url), "argus_rank_up", rank="0") == 1, "rank 0")


def test_gzip_is_served_to_who_accepts_it(running: RunningExporter):
    """As Prometheus asks for it."""
    _, body = get(f"{running.url}/metrics", **{"Accept-Encoding": "gzip"})
    assert b"argus_exporter_build_info" in gzip.decompress(body)


def test_one_rank_can_be_asked_for(running: RunningExporter):
    """`?rank=1` gives that rank's series and nothing of the process."""
    ranks = [Rank(running.socket, 0), Rank(running.socket, 1)]
    for rank in ranks:
        rank.iterate()
    wait_for(lambda: value(scrape(running.url), "argus_rank_up", rank="1") == 1, "rank 1")
    _, body = get(f"{running.url}/metrics?rank=1")
    assert b'rank="1"' in body
    assert b'rank="0"' not in body
    assert b"process_cpu_seconds_total" not in body


@pytest.mark.parametrize(
    "wanted", ["three", "9" * 5000, "", "-1", "1.5", "%D9%A3", "%00", "1%0A2", "99999999999"]
)
def test_a_rank_that_is_no_number_is_refused(path: Path, wanted: str):
    """400 with what is allowed, in one short line."""
    with exporter(config(path)) as running, pytest.raises(urllib.error.HTTPError) as caught:
        get(f"{running.url}/metrics?rank={wanted}&x")
    assert caught.value.code == 400
    said = caught.value.read()
    assert b"allowed: a whole number" in said
    assert said.count(b"\n") == 1
    assert len(said) < 300


def test_the_index_page_tells_how_to_begin_and_then_who_is_here(running: RunningExporter):
    """Ranks with host, step time and channels, and who is gone; what a producer names is escaped."""
    _, body = get(running.url)
    assert f"No rank has connected to <code>{running.socket}</code>" in body.decode()
    rank, leaver = (
        Rank(running.socket, number, training_job="<b>", node="h<7>", role="tp1") for number in (3, 4)
    )
    rank.iterate(seconds=0.5)
    rank.iterate(seconds=0.2)
    wait_for(lambda: b"phases up" in get(running.url)[1], "the rank")
    _, body = get(running.url)
    page = body.decode()
    assert (
        '<td>&lt;b&gt;<td><a href="/metrics?rank=3">3</a><td>h&lt;7&gt;<td>tp1<td>connected'
        "<td>0.2 s, longest 0.5 s<td>2, "
    ) in page
    assert "http-equiv=refresh" in page
    assert "Ranks that are gone" not in page
    leaver.link.close(exit_status=0)
    rank.link.close()
    wait_for(lambda: b'<span class="bad">lost, 0 s ago</span>' in get(running.url)[1], "rank lost")
    left = b"<td>4<td>h&lt;7&gt;<td>0 s ago<td>its training process said goodbye"
    wait_for(lambda: left in get(running.url)[1], "rank gone")


def test_it_is_ready_once_producers_can_connect(running: RunningExporter):
    """Probes of an orchestrator."""
    assert [get(f"{running.url}/{probe}")[1] for probe in ("healthz", "readyz")] == [b"ok\n", b"ok\n"]


def test_a_taken_port_is_named(path: Path):
    """One error that says which address and which flag."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "argus_exporter.cli", "serve", "--socket", str(path)]
        result = subprocess.run(
            [*command, "--web.listen-address", f"127.0.0.1:{port}"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert result.returncode == 2
    last = result.stderr.strip().splitlines()[-1]
    assert f"127.0.0.1:{port}" in last
    assert "--web.listen-address" in last
    assert "Traceback" not in result.stderr


def test_a_socket_in_use_is_named(path: Path):
    """Two exporters never share a socket."""
    with (
        exporter(config(path)),
        pytest.raises(ArgusExporterError, match="in use by another exporter"),
        exporter(config(path)),
    ):
        pass


def test_a_dead_socket_is_replaced(path: Path):
    """An exporter that was killed leaves its socket file behind; the next one starts all the same."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(str(path))
    with exporter(config(path)) as running:
        assert value(scrape(running.url), "argus_exporter_connections") == 0


def test_only_its_owner_reaches_the_socket(path: Path):
    """Mode 0600."""
    with exporter(config(path)):
        assert path.stat().st_mode & 0o777 == 0o600


HELLO = wire.hello(pid=1, rank=0, training_job="job", monotonic_ns=1, realtime_ns=1)
NEVER_BOUND = 99
UNBOUND = wire.Span(1, 1, 1, NEVER_BOUND, 0, 0, 0, 0)
BAD_KIND = wire.Span(1, 1, 1, 0, 0, 77, 0, 0)
MORE_THAN_ALL = wire.Span(1, 10**9, 1, 0, 0, 0, 0, 0, nested_seconds=1.1)
NOT_A_NUMBER = wire.Span(1, 10**9, 1, 0, 0, 0, 0, 0, nested_seconds=float("nan"))


def message(record: wire.Record) -> bytes:
    return wire.pack_message(record.TYPE, record.pack(), 1, 1, 0)


@pytest.mark.parametrize(
    ("packets", "reason"),
    [
        ([b"garbage"], "length"),
        ([b"\0" * 100], "magic"),
        ([message(UNBOUND)], "hello"),
        ([message(HELLO), message(HELLO)], "hello"),
        ([message(HELLO), message(UNBOUND)], "name_id"),
        ([message(HELLO), message(BAD_KIND)], "value"),
        ([message(HELLO), message(MORE_THAN_ALL)], "value"),
        ([message(HELLO), message(wire.PhaseInfo(0, 77, 0))], "value"),
        ([message(HELLO), message(NOT_A_NUMBER)], "value"),
        ([message(HELLO), message(wire.Work(float("nan"), 0))], "value"),
        ([message(HELLO), message(wire.Kernel(1, 1, -1, NEVER_BOUND, 0, 0, 0, 0))], "name_id"),
        ([message(wire.hello(pid=1, rank=-5, training_job="x", monotonic_ns=1, realtime_ns=1))], "hello"),
    ],
)
def test_a_hostile_connection_is_ended_counted_and_harms_nobody(
    running: RunningExporter, packets: list[bytes], reason: str
):
    """The other rank goes on; the reason is a label value."""
    good = Rank(running.socket, 1)
    good.iterate()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as hostile:
        hostile.connect(str(running.socket))
        hostile.settimeout(5)
        for packet in packets:
            hostile.send(packet)
        with contextlib.suppress(ConnectionResetError):  # closed with our bytes unread
            assert hostile.recv(1) == b""
    good.iterate()
    wait_for(lambda: value(scrape(running.url), "argus_iteration_last_step", rank="1") == 2, "rank 1 goes on")
    rejected = "argus_exporter_rejected_connections_total"
    assert value(scrape(running.url), rejected, reason=reason) == 1
