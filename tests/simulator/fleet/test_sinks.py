"""A fleet in a real Prometheus: by remote write, and by backfill of an OpenMetrics file."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from bench.servers import PrometheusServer
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from argus_core.version import installed_version
from argus_simulator.cli import main
from argus_simulator.fleet.play import Fleet, FleetPlan, history, play
from argus_simulator.fleet.remote import ReceiverRefuses, RemoteWrite
from argus_simulator.topology import Topology

TOPOLOGY = Topology(dp=8, tp=2, pp=2)
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="prometheus is absent: apt-get install prometheus",
)


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[PrometheusServer]:
    server = PrometheusServer(tmp_path).start()
    yield server
    server.stop()


@needs_prometheus
@pytest.mark.servers
def test_a_fleet_is_queried_as_if_it_had_been_scraped(prometheus: PrometheusServer) -> None:
    """Rates find the slow rank; what was counted is there."""
    end = time.time()
    times = history(end, 300.0, 15.0)
    faults = ("mechanism=kernels,phases=*-backward,ranks=9,factor=2",)
    fleet = Fleet(FleetPlan(TOPOLOGY, faults=faults), times)
    sink = RemoteWrite(f"{prometheus.url}/api/v1/write")
    sink.open(fleet.blocks)
    written = list(play(fleet, sink))
    sink.close()

    assert [one.number for one in written] == list(range(1, 22))
    [(slowest, _)] = prometheus.query(
        'topk(1, rate(argus_phase_duration_seconds_sum{phase="backward"}[2m]))', end
    )
    assert slowest["rank"] == "9"
    [(_, ranks)] = prometheus.query("count(argus_rank_up)", end)
    assert ranks == TOPOLOGY.ranks
    [(_, stored)] = prometheus.query('count({training_job="fleet"})', end)
    [(_, exporters)] = prometheus.query('count({training_job="", job="argus"})', end)
    assert stored + exporters == written[-1].series


@needs_prometheus
@pytest.mark.servers
def test_it_goes_on_in_real_time(prometheus: PrometheusServer) -> None:
    """After the history a sample comes when it is due."""
    end = time.time()
    clock = [end]
    fleet = Fleet(FleetPlan(TOPOLOGY, channels=("phases",)), history(end, 15.0, 15.0, live=45.0))
    sink = RemoteWrite(f"{prometheus.url}/api/v1/write")
    sink.open(fleet.blocks)
    waited = []

    def wait(seconds: float) -> None:
        waited.append(round(seconds))
        clock[0] += seconds

    written = list(play(fleet, sink, clock=lambda: clock[0], wait=wait))

    assert [round(one.at - end) for one in written] == [-15, 0, 15, 30, 45]
    assert waited == [15, 15, 15]


@needs_prometheus
@pytest.mark.servers
def test_promtool_takes_the_file(tmp_path: Path) -> None:
    """OpenMetrics for backfill: promtool makes blocks, and a Prometheus on them has every sample."""
    file = tmp_path / "fleet.om"
    size = ["--ranks", "16", "--tp", "2", "--pp", "2", "--history", "3m", "--label", "cluster=a", "--quiet"]
    status = main(["fleet", *size, "--openmetrics", str(file)])
    assert status == 0
    data = tmp_path / "data"
    made = subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(file), str(data)],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    samples = sum(not line.startswith("#") for line in file.read_text().splitlines())
    # Over all blocks: three minutes around an even hour lie in two.
    blocks = [json.loads(meta.read_text()) for meta in data.glob("*/meta.json")]
    assert sum(block["stats"]["numSamples"] for block in blocks) == samples
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".fleet-")] == []

    server = PrometheusServer(tmp_path).start()
    try:
        [(labels, ranks)] = server.query(
            "count by (cluster) (last_over_time(argus_rank_up[10m]))", time.time()
        )
    finally:
        server.stop()
    assert (labels, ranks) == ({"cluster": "a"}, 16)


def test_openmetrics_is_valid(tmp_path: Path) -> None:
    """One TYPE a family, its samples together, each series' samples by time, and an end."""
    file = tmp_path / "fleet.om"
    size = ["--ranks", "4", "--tp", "2", "--pp", "1", "--history", "90s", "--quiet"]
    assert main(["fleet", *size, "--openmetrics", str(file)]) == 0

    # prometheus-client's parser refuses interleaved families and what lacks the end.
    families = list(text_string_to_metric_families(file.read_text()))

    names = [family.name for family in families]
    assert len(names) == len(set(names))
    assert "argus_phase_duration_seconds" in names


@contextlib.contextmanager
def _answering(status: int, text: bytes = b"") -> Iterator[tuple[str, list[Message]]]:
    """URL of a receiver that always answers so, and the headers of the requests that came."""
    came: list[Message] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            came.append(self.headers)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args: object) -> None:
            """Nothing on stderr."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/api/v1/write", came
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "text", "says"),
    [
        (404, b"", "--web.enable-remote-write-receiver.*/api/v1/push.*/api/v1/receive"),
        (400, b"unsupported path requested", "/insert/0/prometheus/api/v1/write"),
        (401, b"no org id", "--header, such as X-Scope-OrgID=TENANT"),
        (415, b"", "prometheus.WriteRequest"),
    ],
)
def test_a_refusal_says_its_remedy(status: int, text: bytes, says: str) -> None:
    """A receiver that is off, a path of another engine, a tenant that is missing, another version."""
    with _answering(status, text) as (url, came):
        fleet = Fleet(FleetPlan(TOPOLOGY, channels=("phases",)), [1.8e9])
        sink = RemoteWrite(url)
        sink.open(fleet.blocks)
        with pytest.raises(ReceiverRefuses, match=rf"HTTP {status}: .*{says}"):
            sink.write(1.8e9, fleet.sample(1.8e9))
    assert len(came) == 1


def test_headers_of_a_tenant_are_sent() -> None:
    """With each request, beside those of remote write and our name."""
    size = ["--ranks", "4", "--tp", "2", "--pp", "1", "--history", "30s", "--quiet"]
    with _answering(204) as (url, came):
        assert main(["fleet", *size, "--remote-write", url, "--header", "X-Scope-OrgID=team-a=b"]) == 0
    assert came
    for headers in came:
        assert headers["X-Scope-OrgID"] == "team-a=b"
        assert headers["Content-Type"] == "application/x-protobuf"
        assert headers["User-Agent"] == f"argus-simulator/{installed_version()}"


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("X-Scope-OrgID", "--header X-Scope-OrgID: allowed: NAME=VALUE"),
        ("Content-Type=text/plain", "headers.Content-Type is set by ARGUS itself"),
        ("a b=c", "headers.a b is no header name"),
    ],
)
def test_what_is_no_header_of_ours_is_refused(
    header: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is sent."""
    assert main(["fleet", "--remote-write", "http://127.0.0.1:1/w", "--header", header]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ranks", "10"], "10 ranks do not divide into tp 4 x pp 4"),
        (["--channels", "kernels"], "channels is 'kernels'; allowed: phases, and"),
        (["--fault", "mechanism=leave,ranks=9999"], "ranks=9999: no such ranks among 1024"),
        (["--step", "0.01"], "step is 0.01 s; allowed: 0.1 to 600"),
        (["--label", "cluster"], "--label cluster: allowed: NAME=VALUE"),
        (["--header", "a=b"], "--header goes with --remote-write only"),
        (["--live", "1m"], "--live goes with --remote-write only"),
        (["--every", "0"], "--every is 0 s; allowed: above 0"),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, with the value and what is allowed; no file is left."""
    assert main(["fleet", *arguments, "--openmetrics", str(tmp_path / "x.om")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "x.om").exists()


def test_help_explains_faults(capsys: pytest.CaptureFixture[str]) -> None:
    """Every mechanism is listed, and the commands that follow a backfill."""
    with pytest.raises(SystemExit):
        main(["fleet", "--help"])
    said = capsys.readouterr().out
    assert "the first operation of `phases` never ends" in said
    assert "promtool tsdb create-blocks-from openmetrics" in said
