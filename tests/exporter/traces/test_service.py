"""A running exporter hands out traces: on request, by sampling, within limits, behind its authentication."""

from __future__ import annotations

import dataclasses
import json
import socket
import sys
import time
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from argus_core import wire
from argus_core.link import default_socket_path
from argus_core.store import StoreConfig, open_store
from argus_core.store.base import read
from argus_core.store.keys import TraceKey
from argus_exporter.config import ExporterConfig
from argus_exporter.errors import ArgusExporterError
from argus_exporter.publish.config import WebConfig
from argus_exporter.server import RunningExporter
from argus_exporter.traces import service
from argus_exporter.traces.config import RequestsConfig, RingConfig, SamplingConfig, TracesConfig
from argus_exporter.traces.segments import FrameType, read_frames
from exporter.exporter_process import Rank, config, exporter, greeting, scrape, value, wait_for
from exporter.traces.rings import segments
from trace_processor import open_trace

LIMIT_S = 60.0


def traced(tmp_path: Path, **changes: Any) -> ExporterConfig:
    store = StoreConfig(folder=tmp_path / "store")
    traces = TracesConfig(**({"folder": tmp_path / "traces", "store": store} | changes))
    return dataclasses.replace(config(tmp_path / "exporter.sock"), traces=traces)


def post(url: str, content: object, login: str | None = None) -> tuple[int, dict[str, Any]]:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    request = urllib.request.Request(f"{url}/traces/request", data=body, method="POST")
    if login is not None:
        request.add_header("Authorization", f"Basic {b64encode(login.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        text = error.read()
        return error.code, json.loads(text) if text.startswith(b"{") else {}


def steps_of(running, rank: Rank, count: int) -> None:
    for _ in range(count):
        rank.iterate(seconds=2e-5, kernels=10)  # shorter than iterate takes: steps do not overlap
    name = "argus_iteration_last_step"
    wait_for(lambda: value(scrape(running.url), name, rank="1") == rank.step, "the last step", LIMIT_S)


def test_a_thousand_ranks_that_come_and_leave_cost_no_descriptor(tmp_path: Path) -> None:
    """Each under a job of its own, as a hostile peer says it; the rank that trains goes on."""
    with exporter(traced(tmp_path)) as running:
        rank = Rank(running.socket, 1)
        steps_of(running, rank, 1)
        assert running.traces is not None
        assert running.traces.ring.flush()
        before = len(list(Path("/proc/self/fd").iterdir()))
        for number in range(1000):
            Rank(running.socket, 0, training_job=f"job{number}").link.close(0)
        wait_for(lambda: len(running.ranks) == 1, "all others left", LIMIT_S)
        assert running.traces.ring.flush()
        scrape(running.url)
        wait_for(lambda: len(list(Path("/proc/self/fd").iterdir())) <= before, "no descriptor is left")
        assert [path.name for path in (tmp_path / "traces" / "ring").glob("*/*/")] == ["1"]
        steps_of(running, rank, 1)


@pytest.mark.servers
def test_a_request_for_steps_becomes_a_trace_in_the_store(tmp_path: Path) -> None:
    """Answered with the key; the trace has the steps, their kernels, and the labels of the series."""
    with exporter(traced(tmp_path)) as running:
        rank = Rank(tmp_path / "exporter.sock", 1, coordinates={"dp": 1}, sizes={"dp": 2})
        steps_of(running, rank, 5)
        status, answer = post(running.url, {"training_job": "job", "ranks": [1, 7], "steps": [2, 4]})
        assert status == 202
        assert "no step of 2 to 4 in the ring" in answer["missing"]["7"]
        key = TraceKey.parse(answer["keys"]["1"])
        assert (key.training_job, key.rank, key.first_step, key.last_step) == ("job", 1, 2, 4)
        assert running.traces is not None
        assert running.traces.uploader.wait_until_empty(LIMIT_S)
        content = read(open_store(StoreConfig(folder=tmp_path / "store")), str(key), 1 << 20)
        samples = scrape(running.url)
        assert value(samples, "argus_exporter_trace_uploads_total", result="success") == 1
        assert value(samples, "argus_exporter_trace_windows_total", why="request") == 1
        assert value(samples, "argus_exporter_trace_requests_total", result="accepted") == 1
        assert value(samples, "argus_exporter_trace_ring_bytes") > 0
    with open_trace(content, folder=tmp_path) as trace:
        assert trace.rows("select name from process where pid = 1") == [("rank 1 (dp1)",)]
        names = trace.rows("select name from slice where category = 'iteration' order by ts")
        assert names == [("step 2",), ("step 3",), ("step 4",)]
        kernels = trace.value(  # those of this test overlap, so they lie side by side
            "select count(*) from slice s join thread_track tt on s.track_id = tt.id "
            "join thread t using (utid) where category = 'kernel' and t.name like 'stream compute0%'"
        )
        assert kernels == 30


def test_what_a_sender_has_lost_in_its_life_is_counted_once(tmp_path: Path) -> None:
    """It tells its total with every message, and again on each new connection."""
    with exporter(traced(tmp_path)) as running:
        for step in (1, 2, 3):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sender:
                sender.connect(str(running.socket))
                mark = wire.Iteration(step, time.time_ns(), 10**9, step, 1.0, 1.0)
                for record in (greeting(1)(), mark):
                    sender.send(wire.pack_message(record.TYPE, record.pack(), 1, 1, 500))
                name = "argus_iteration_last_step"
                wait_for(lambda: value(scrape(running.url), name, rank="1") == step, "the step")  # noqa: B023
        assert running.traces is not None
        assert running.traces.ring.flush()
        frames = [
            int.from_bytes(frame.payload, "little")
            for path in segments(running.traces.ring.folder)
            for frame in read_frames(path)
            if frame.type is FrameType.DROPPED
        ]
    assert frames == [500]


def test_the_same_window_is_made_once(tmp_path: Path) -> None:
    """Two alerts name one rank: one trace, one key."""
    with exporter(traced(tmp_path)) as running:
        rank = Rank(tmp_path / "exporter.sock", 1)
        steps_of(running, rank, 3)
        wanted = {"training_job": "job", "ranks": [1], "steps": [1, 2]}
        answers = [post(running.url, wanted) for _ in range(3)]
        assert answers[0] == answers[1] == answers[2]
        assert value(scrape(running.url), "argus_exporter_trace_windows_total", why="request") == 1


def test_a_request_by_time_names_the_steps_of_that_time(tmp_path: Path) -> None:
    """Unix seconds, as an alert has them; a time without records is 404."""
    with exporter(traced(tmp_path)) as running:
        rank = Rank(tmp_path / "exporter.sock", 1)
        steps_of(running, rank, 1)
        status, answer = post(running.url, {"training_job": "job", "ranks": [1], "steps": [1, 1]})
        begin = TraceKey.parse(answer["keys"]["1"]).begin_ns / 1e9
        by_time = {"training_job": "job", "ranks": [1], "start": begin, "end": begin + 0.01}
        assert post(running.url, by_time) == (status, answer)
        status, answer = post(running.url, by_time | {"start": begin - 100, "end": begin - 90})
        assert status == 404
        assert answer["missing"]["1"] == "rank 1 of job: nothing in the ring of that time"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not JSON"),
        (b"[" * 60_000, "not JSON"),
        (b" " * 70_000, "longer than 65536 bytes"),
        ([], "must be a JSON object"),
        ({"job": "x"}, "unknown key 'job'; allowed: training_job, ranks, start, end, steps"),
        ({"ranks": [1], "steps": [1, 2]}, "training_job is None"),
        ({"training_job": "j" * 300, "ranks": [1], "steps": [1, 2]}, "allowed: a text of 1 to 64 bytes"),
        ({"training_job": "j", "ranks": [], "steps": [1, 2]}, "ranks must be a list of 1 to 256"),
        ({"training_job": "j", "ranks": [True], "steps": [1, 2]}, "ranks must be a list"),
        ({"training_job": "j", "ranks": [1], "steps": [2, 1]}, "steps is [2, 1]; allowed: first <= last"),
        ({"training_job": "j", "ranks": [1], "steps": [0, 64]}, "at most 64 steps"),
        ({"training_job": "j", "ranks": [1], "steps": [0, 1], "end": 5}, "exclude one another"),
        ({"training_job": "j", "ranks": [1]}, "start is None; allowed: Unix time in seconds"),
        ({"training_job": "j", "ranks": [1], "start": 1e12, "end": 5}, "start is 1000000000000.0"),
        ({"training_job": "j", "ranks": [1], "start": 5, "end": 5}, "end - start is 0 s"),
        ({"training_job": "j", "ranks": [1], "start": 0, "end": 500}, "up to 120 s"),
    ],
)
def test_a_request_that_is_wrong_is_told_what_is_allowed(tmp_path: Path, content, message: str) -> None:
    """400, counted; the exporter goes on."""
    with exporter(traced(tmp_path)) as running:
        status, answer = post(running.url, content)
        assert (status, message in answer["error"]) == (400, True), answer
        assert value(scrape(running.url), "argus_exporter_trace_requests_total", result="refused") == 1


def test_more_requests_than_allowed_are_told_when_to_come_again(tmp_path: Path) -> None:
    """By windows, not by requests: three ranks are three."""
    with exporter(traced(tmp_path, requests=RequestsConfig(per_minute=4))) as running:
        wanted = {"training_job": "job", "ranks": [1, 2, 3], "steps": [1, 2]}
        assert post(running.url, wanted)[0] == 404
        status, answer = post(running.url, wanted)
        assert status == 429
        assert "more than 4 windows a minute" in answer["error"]
        assert value(scrape(running.url), "argus_exporter_trace_requests_total", result="limited") == 1


def test_requests_need_the_password_where_metrics_do(tmp_path: Path) -> None:
    """One authentication for all routes."""
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    web = tmp_path / "web.yaml"
    web.write_text(f"basic_auth_users:\n  worker: {hashed}\n")
    secured = dataclasses.replace(traced(tmp_path), web=WebConfig("127.0.0.1:0", web))
    with exporter(secured) as running:
        wanted = {"training_job": "job", "ranks": [1], "steps": [1, 2]}
        assert post(running.url, wanted)[0] == 401
        assert post(running.url, wanted, login="worker:wrong")[0] == 401
        assert post(running.url, wanted, login="worker:secret")[0] == 404


def test_sampled_windows_are_uploaded_without_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two steps of every four; the first window is not, since it may have begun before we looked."""
    monkeypatch.setattr(service, "_SAMPLING_TICK_S", 0.05)
    sampling = SamplingConfig(every_steps=4, steps=2, ratio=1.0)
    with exporter(traced(tmp_path, sampling=sampling)) as running:
        rank = Rank(tmp_path / "exporter.sock", 1)
        steps_of(running, rank, 2)
        sampled = "argus_exporter_trace_windows_total"
        wait_for(lambda: ("job", 1) in running.traces._sampler._seen, "the first look", LIMIT_S)
        steps_of(running, rank, 4)
        wait_for(lambda: value(scrape(running.url), sampled, why="sampling") == 1, "a trace", LIMIT_S)
        steps_of(running, rank, 4)
        wait_for(lambda: value(scrape(running.url), sampled, why="sampling") == 2, "another", LIMIT_S)
        assert running.traces.uploader.wait_until_empty(LIMIT_S)
    keys = [TraceKey.parse(item.key) for item in open_store(StoreConfig(folder=tmp_path / "store")).list()]
    assert [(key.first_step, key.last_step) for key in keys] == [(4, 5), (8, 9)]


@pytest.mark.servers
def test_traces_survive_a_restart_of_the_exporter(tmp_path: Path) -> None:
    """What a rank sent before, with its names, is asked for after."""
    configuration = traced(tmp_path)
    with exporter(configuration) as running:
        steps_of(running, Rank(tmp_path / "exporter.sock", 1), 3)
    with exporter(configuration) as running:
        status, answer = post(running.url, {"training_job": "job", "ranks": [1], "steps": [1, 3]})
        assert status == 202
        assert running.traces.uploader.wait_until_empty(LIMIT_S)
    content = read(open_store(StoreConfig(folder=tmp_path / "store")), answer["keys"]["1"], 1 << 20)
    with open_trace(content, folder=tmp_path) as trace:
        assert trace.rows("select name, count(*) as n from slice where category = 'kernel' group by 1") == [
            ("gemm", 30)
        ]


def test_an_exporter_beside_the_users_own_keeps_no_traces_unless_told(running: RunningExporter) -> None:
    """Its socket is not the default one, and nobody named a folder: 503, which says where to look."""
    assert running.traces is None
    status, answer = post(running.url, {"training_job": "job", "ranks": [1], "steps": [1, 2]})
    assert (status, "keeps no traces" in answer["error"]) == (503, True)


def test_the_users_own_exporter_keeps_traces_in_the_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without configuration; off when the configuration says so."""
    monkeypatch.delenv("ARGUS_SOCKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    plain = config(default_socket_path())
    with exporter(plain) as running:
        assert running.traces is not None
        assert running.traces.ring.folder == tmp_path / "state" / "argus" / "exporter" / "ring"
    off = dataclasses.replace(plain, traces=TracesConfig(enabled=False))
    with exporter(off) as running:
        assert running.traces is None


def test_a_folder_that_cannot_be_written_is_named_by_its_key(tmp_path: Path) -> None:
    """The path alone does not tell which of the settings to change."""
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "traces"
    plain = config(tmp_path / "s")
    with (
        pytest.raises(ArgusExporterError, match=rf"traces: .*; traces\.folder is {folder}$"),
        exporter(dataclasses.replace(plain, traces=TracesConfig(folder=folder))),
    ):
        pass


def test_without_the_extra_the_exporter_goes_on_unless_traces_were_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warning where they are kept by default, a refusal where the configuration names them."""
    monkeypatch.setitem(sys.modules, "perfetto", None)
    monkeypatch.delenv("ARGUS_SOCKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with exporter(config(default_socket_path())) as running:
        assert running.traces is None
    with (
        pytest.raises(ArgusExporterError, match=r"install argus-for-prometheus\[trace\]"),
        exporter(traced(tmp_path)),
    ):
        pass


def test_a_folder_that_cannot_be_used_is_refused_where_it_was_named(tmp_path: Path) -> None:
    """Exit status 2 with the reason; without a configured folder it is a warning only."""
    (tmp_path / "traces").write_text("a file")
    with (
        pytest.raises(ArgusExporterError, match=r"traces: .*File exists|traces: .*Not a directory"),
        exporter(traced(tmp_path)),
    ):
        pass
    with (
        exporter(traced(tmp_path, folder=tmp_path / "good")),
        pytest.raises(ArgusExporterError, match="in use by another exporter"),
        exporter(
            dataclasses.replace(
                traced(tmp_path, folder=tmp_path / "good"), socket=config(tmp_path / "b").socket
            )
        ),
    ):
        pass


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), 59.0])
def test_a_ring_without_end_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="allowed: 60 or more, and finite"):
        RingConfig(seconds=seconds)
