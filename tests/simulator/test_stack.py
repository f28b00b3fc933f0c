"""The stack's processes: they start, they say why they do not, and they never stay behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml

from argus_exporter.kernels.config import WindowsConfig
from argus_exporter.py_spy.config import StacksConfig
from argus_l3_worker.config import Config as WorkerConfig
from argus_simulator.stack import Stack, StackError, StackOptions, WaitTimeout, wait_for
from argus_simulator.stack.alertmanager import configuration
from argus_simulator.stack.family import descendants
from argus_simulator.stack.parts import STACKS_S, TRACE_S, WINDOWS, WORKER
from argus_simulator.stack.ports import free_port, listens
from argus_simulator.stack.processes import Child, start_server
from argus_simulator.stack.prometheus import PrometheusApi
from argus_simulator.stack.prometheus import configuration as prometheus_configuration
from argus_simulator.stack.repository import find_repository, rule_files

SERVER = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code), *arguments]


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_server_is_ready_when_started(tmp_path: Path):
    """It listens itself on the port in its URL, and stops on request."""
    server = start_server("web", lambda port: python(SERVER, str(port)), "/", tmp_path / "log")
    try:
        assert listens(server.child.pid, server.port)
    finally:
        server.child.stop()
    assert not alive(server.child.pid)


def test_a_server_that_dies_is_reported_with_its_log(tmp_path: Path):
    """The reason is in the message, not in a file somewhere."""
    with pytest.raises(StackError, match=r"(?s)web ended with status 3.*no such option"):
        start_server(
            "web", lambda _: python("import sys; print('no such option'); sys.exit(3)"), "/", tmp_path / "log"
        )


def test_a_taken_port_is_tried_anew(tmp_path: Path):
    """Somebody took the port between choice and use: the next one is taken."""
    first = start_server("first", lambda port: python(SERVER, str(port)), "/", tmp_path / "a")
    ports = iter([first.port])
    try:
        second = start_server(
            "second", lambda port: python(SERVER, str(next(ports, port))), "/", tmp_path / "b"
        )
        second.child.stop()
        assert second.port != first.port
    finally:
        first.child.stop()


def test_somebody_elses_answer_is_not_ours(tmp_path: Path):
    """Who listens is looked up by process, not asked by HTTP."""
    server = start_server("web", lambda port: python(SERVER, str(port)), "/", tmp_path / "log")
    try:
        assert not listens(os.getpid(), server.port)
        assert not listens(server.child.pid, free_port())
    finally:
        server.child.stop()


def test_a_program_that_is_not_there_is_named(tmp_path: Path):
    """No traceback of subprocess."""
    with pytest.raises(StackError, match=r"web: cannot start /no/such/program: No such file"):
        Child("web", ["/no/such/program"], tmp_path / "log")


def test_stopping_ends_a_deaf_child_and_its_own_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """SIGTERM ignored, a grandchild in a session of its own: both are gone after the bounded wait."""
    monkeypatch.setattr("argus_simulator.stack.processes._STOP_S", 0.3)
    code = """
        import signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"],
                         start_new_session=True)
        time.sleep(600)
    """
    log = tmp_path / "log"
    child = Child("deaf", python(code), log)
    try:
        wait_for(lambda: "up" in log.read_text(), 10, "the grandchild to start")
        family = descendants(child.pid)
        assert len(family) == 1
    finally:
        child.stop()
    assert not alive(child.pid)
    wait_for(lambda: not any(relative.alive for relative in family), 10, "the grandchild to end")


PARENT = """
    import sys, time
    from pathlib import Path
    from argus_simulator.stack.processes import Child
    child = Child("sleeper", [sys.executable, "-c", "import time; time.sleep(600)"], Path(sys.argv[1]))
    print(child.pid, flush=True)
    time.sleep(600)
"""


def test_children_die_when_their_parent_is_killed(tmp_path: Path):
    """kill -9 leaves no chance to clean up; the kernel does."""
    with subprocess.Popen(python(PARENT, str(tmp_path / "log")), stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.kill()
    wait_for(lambda: not alive(pid), 10, "the child to end with its parent")


def test_waiting_in_vain_says_for_what_and_what_was_seen():
    """A test that times out explains itself."""
    with pytest.raises(WaitTimeout, match=r"waited 0 s for rain in vain \(last seen: \[\]\)"):
        wait_for(list, 0, "rain")


def test_without_a_checkout_the_way_to_one_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An installed wheel has no rules: ARGUS_REPO names where they are."""
    monkeypatch.setenv("ARGUS_REPO", str(tmp_path))
    with pytest.raises(StackError, match="set ARGUS_REPO"):
        find_repository()
    (tmp_path / "rules").mkdir()
    (tmp_path / "alertmanager").mkdir()
    assert find_repository() == tmp_path
    with pytest.raises(StackError, match="from `make generate`"):
        rule_files(tmp_path / "rules")


def test_webhooks_of_the_configuration_are_sent_to_our_receiver(tmp_path: Path):
    """Host and port are replaced, the path that tells team and severity stays."""
    source = tmp_path / "alertmanager.yaml"
    source.write_text(
        "receivers: [{name: a, webhook_configs: [{url: 'http://127.0.0.1:9/operations/page'}]}]\n"
        "templates: ['templates/*.tmpl']\n"
    )
    text = configuration(source, "http://127.0.0.1:5")
    assert "url: http://127.0.0.1:5/operations/page" in text
    assert f"{tmp_path}/templates/*.tmpl" in text
    source.write_text("receivers: [{name: a}]")
    with pytest.raises(StackError, match="no receiver has a webhook"):
        configuration(source, "http://127.0.0.1:5")


def test_the_exporter_and_the_worker_have_their_own_windows_at_the_pace_of_the_rules():
    """What is set is what they have by themselves: the pace alone differs."""
    windows, stacks = WindowsConfig(), StacksConfig()
    assert {name: getattr(windows, name) for name in WINDOWS} == WINDOWS
    assert stacks.window_seconds == STACKS_S
    worker = WorkerConfig()
    assert {name: getattr(worker, f"{name}_seconds") for name in WORKER} == WORKER
    assert worker.traces.request.seconds == TRACE_S


def test_prometheus_scrapes_and_forgets_at_the_pace_of_the_rules():
    """15 s are 1.5 s."""
    text = prometheus_configuration([Path("a.yaml")], Path("/targets"), "127.0.0.1:9093")
    intervals = yaml.safe_load(text)["global"]
    assert intervals["scrape_interval"] == intervals["evaluation_interval"] == "1500ms"


METRICS = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
TEXT = (b'prometheus_rule_group_iterations_total{rule_group="a"} 30\\n'
        b'prometheus_rule_group_iterations_total{rule_group="b"} 10\\n'
        b'prometheus_rule_group_iterations_missed_total{rule_group="a"} 6\\n'
        b'prometheus_rule_group_iterations_missed_total{rule_group="b"} 0\\n')
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(TEXT)
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_missed_evaluations_are_a_share_of_those_that_were_due(tmp_path: Path):
    """Prometheus' total has the missed ones in it."""
    server = start_server("web", lambda port: python(METRICS, str(port)), "/metrics", tmp_path / "log")
    try:
        assert PrometheusApi(server.url).missed_evaluations() == pytest.approx(6 / 40)
    finally:
        server.child.stop()


@pytest.mark.servers
def test_the_stack_starts_answers_and_leaves_nothing():
    """All parts are up and scraped, an exception passes through, and every process and file is gone."""
    pids: list[int] = []
    with pytest.raises(RuntimeError, match="in between"), Stack() as stack:
        pids = list(stack.pids.values())
        assert set(stack.pids) == {"alertmanager", "exporter", "prometheus", "l3-worker"}
        assert all(alive(pid) for pid in pids)
        assert [value for _, value in stack.query('up{job="argus-exporter"}')] == [1.0]
        assert stack.alerts() == []
        assert stack.notifications() == []
        assert stack.rule_errors() == []
        folder = stack.folder
        raise RuntimeError("in between")
    assert not any(alive(pid) for pid in pids)
    assert not folder.exists()


@pytest.mark.servers
def test_a_part_that_dies_ends_the_waiting():
    """Waiting on a dead stack would only time out: its log is shown at once."""
    with Stack(StackOptions(l3_worker=False)) as stack:
        os.kill(stack.pids["exporter"], signal.SIGKILL)
        with pytest.raises(StackError, match=r"exporter was killed by signal 9; the end of its log"):
            stack.wait_for(lambda: False, 30, "nothing")


@pytest.mark.servers
def test_exporters_come_and_go():
    """A second one is scraped, left out for a while, and scraped again; the stack goes on."""
    with Stack(StackOptions(l3_worker=False)) as stack:
        added = stack.add_exporter("second", {"job-*": "model"})

        def scraped() -> float:
            return sum(value for _, value in stack.query('count(up{job="argus-exporter"} == 1)'))

        stack.wait_for(lambda: scraped() == 2, 30, "both exporters to be scraped")
        stack.scrape_no_more(added.address)
        stack.wait_for(lambda: scraped() == 1, 30, "the second to be left out")
        stack.scrape(added.address)
        stack.wait_for(lambda: scraped() == 2, 30, "both exporters to be scraped again")
        assert 0 <= stack.missed_evaluations() < 1
        stack.check()


# nohup and background shells hand on ignored signals, which the stack would respect.
HOLDER = """
    import signal, time
    from argus_simulator.stack import Stack
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with Stack() as stack:
        print(stack.folder, *stack.pids.values(), flush=True)
        time.sleep(600)
"""


@pytest.mark.servers
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_no_signal_leaves_a_process_behind(number: signal.Signals):
    """Orderly where the signal allows it, by the kernel where it does not."""
    with subprocess.Popen(
        python(HOLDER), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as holder:
        assert holder.stdout is not None
        folder, *pids = holder.stdout.readline().split()
        assert len(pids) == 4
        holder.send_signal(number)
    wait_for(lambda: not any(alive(int(pid)) for pid in pids), 30, "all processes to end")
    if number is signal.SIGKILL:
        shutil.rmtree(folder)  # nobody was left to do it
    assert not Path(folder).exists()
