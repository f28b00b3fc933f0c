"""`argus-exporter serve` as a process: signals, configuration, discovery file."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.exporter_process import Rank, scrape, value, wait_for


class Serving:
    def __init__(self, folder: Path, *options: str, files: int | None = None) -> None:
        self.socket = folder / "exporter.sock"
        self.log = folder / "exporter.log"
        command = [sys.executable, "-m", "argus_exporter.cli", "serve", "--socket", str(self.socket)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [
                    *(() if files is None else ("prlimit", f"--nofile={files}:{files}")),
                    *(*command, "--web.listen-address", "127.0.0.1:0", *options),
                ],
                stderr=log,
            )
        wait_for(lambda: "serving metrics" in self.log.read_text(), f"exporter up: {self.log.read_text()}")
        found = re.search(r"url=(\S+)/metrics", self.log.read_text())
        assert found is not None
        self.url = found[1]


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    file = tmp_path / "exporter.yaml"
    file.write_text("routing: {special: world}\n")
    return file


@pytest.fixture
def serving(tmp_path: Path, config_file: Path) -> Iterator[Serving]:
    running = Serving(tmp_path, "--config", str(config_file), "--sd.file", str(tmp_path / "sd.json"))
    yield running
    running.process.kill()
    running.process.wait()


def test_sigterm_ends_it_cleanly(tmp_path: Path, serving: Serving):
    """Exit status 0; socket and discovery file are gone."""
    serving.process.send_signal(signal.SIGTERM)
    assert serving.process.wait(timeout=10) == 0
    assert not serving.socket.exists()
    assert not (tmp_path / "sd.json").exists()


def test_the_discovery_file_names_the_target(tmp_path: Path, serving: Serving):
    """What Prometheus' file_sd reads: the address that is served."""
    (entry,) = json.loads((tmp_path / "sd.json").read_text())
    assert [f"http://{target}" for target in entry["targets"]] == [serving.url]


def test_sighup_takes_a_new_configuration(config_file: Path, serving: Serving):
    """Ranks that are connected are routed by the new table from then on."""
    rank = Rank(serving.socket, 0)
    rank.iterate(phase="special")
    count = "argus_phase_duration_seconds_count"
    wait_for(lambda: value(scrape(serving.url), count, group="world") == 1, "first routing")
    config_file.write_text("routing: {special: dp}\ntraces: {ring: {seconds: 600}, requests: {}}\n")
    serving.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "configuration reloaded" in serving.log.read_text(), "reload")
    rank.iterate(phase="special")
    wait_for(lambda: value(scrape(serving.url), count, group="dp") == 1, "second routing")
    said = next(line for line in serving.log.read_text().splitlines() if "need a restart" in line)
    assert "traces.ring.seconds" in said and "routing" not in said


def test_users_who_are_allowed_too_late_are_told_of(config_file: Path, serving: Serving):
    """The socket is its owner's alone; that others may reach it is settled where it is made."""
    config_file.write_text("socket: {allowed_users: ['*']}\n")
    serving.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "need a restart" in serving.log.read_text(), "the word")
    assert "socket.allowed_users" in serving.log.read_text()


def test_a_wrong_configuration_is_refused_and_the_old_one_kept(config_file: Path, serving: Serving):
    """One log line with file and key, a metric to alert on, and everything goes on."""
    config_file.write_text("routng: {}\n")
    serving.process.send_signal(signal.SIGHUP)
    metric = "argus_exporter_config_last_reload_successful"
    wait_for(lambda: value(scrape(serving.url), metric) == 0, "refusal")
    assert "unknown key routng; did you mean routing?" in serving.log.read_text()
    assert "Traceback" not in serving.log.read_text()


class Trainer:
    """A training process of its own that steps and sends all the time."""

    def __init__(self, folder: Path, socket: Path, rank: int) -> None:
        self.rank = str(rank)
        self._report = folder / f"rank{rank}.json"
        command = [sys.executable, "-m", "exporter.trainer", str(socket), self.rank, str(self._report)]
        self.process = subprocess.Popen(command, cwd=Path(__file__).parents[2])
        wait_for(self._report.exists, "the first step", timeout_s=60)

    def report(self) -> dict[str, float]:
        read: dict[str, float] = json.loads(self._report.read_text())
        return read

    def go_on(self, steps: int) -> None:
        """Wait until it has made so many more steps."""
        target = self.report()["steps"] + steps
        wait_for(lambda: self.report()["steps"] >= target, f"{steps} more steps", timeout_s=120)

    def end(self) -> dict[str, float]:
        self.process.terminate()
        assert self.process.wait(timeout=30) == 0
        return self.report()


@pytest.fixture
def trainers(tmp_path: Path, serving: Serving) -> Iterator[list[Trainer]]:
    started = [Trainer(tmp_path, serving.socket, rank) for rank in range(2)]
    yield started
    for trainer in started:
        trainer.process.kill()
        trainer.process.wait()


@pytest.mark.slow
def test_kill_9_neither_blocks_training_nor_hides_the_loss(
    tmp_path: Path, serving: Serving, trainers: list[Trainer]
):
    """Under load: steps go on without an exporter; the next one gets the totals and what was lost between."""
    count, dropped = "argus_iteration_duration_seconds_count", "argus_records_dropped_total"
    for trainer in trainers:
        wait_for(
            lambda trainer=trainer: value(scrape(serving.url), count, rank=trainer.rank) is not None,  # type: ignore[misc]
            "records arrive",
        )
    before = [value(scrape(serving.url), count, rank=trainer.rank) or 0 for trainer in trainers]
    serving.process.kill()
    serving.process.wait()
    for trainer in trainers:  # a send that waited for a reader would wait for ever
        trainer.go_on(200)
    second = Serving(tmp_path)
    try:
        for trainer in trainers:
            wait_for(
                lambda trainer=trainer: value(scrape(second.url), count, rank=trainer.rank) is not None,  # type: ignore[misc]
                "the rank is back",
                timeout_s=60,
            )
        for trainer, earlier in zip(trainers, before, strict=True):
            assert (value(scrape(second.url), count, rank=trainer.rank) or 0) >= earlier + 200
            trainer.go_on(5)  # the loss travels with the next packet
            wait_for(
                lambda trainer=trainer: (  # type: ignore[misc]
                    (value(scrape(second.url), dropped, rank=trainer.rank, reason="socket") or 0) >= 200 * 50
                ),
                "the loss is counted",
            )
        reports = [trainer.end() for trainer in trainers]
        for trainer, report in zip(trainers, reports, strict=True):
            lost = value(scrape(second.url), dropped, rank=trainer.rank, reason="socket")
            assert lost is not None
            assert lost <= report["lost"]
            assert report["longest_s"] < 10  # that it waited for the next exporter would show
    finally:
        second.process.kill()
        second.process.wait()


def test_sighup_takes_a_new_topology(tmp_path: Path, config_file: Path, serving: Serving):
    """Ranks that are connected move to their new groups; the old series end."""
    topology = tmp_path / "topology.yaml"
    topology.write_text("job: {sizes: {dp: 1, tp: 2}}\n")
    rank = Rank(serving.socket, 1)
    rank.iterate()
    count = "argus_phase_duration_seconds_count"
    wait_for(lambda: value(scrape(serving.url), count, group="dp") == 1, "first group")
    config_file.write_text(f"topology: {{file: {topology}}}\n")
    serving.process.send_signal(signal.SIGHUP)
    wait_for(lambda: value(scrape(serving.url), "argus_rank_info", tp="1") == 1, "the topology")
    rank.iterate()
    wait_for(lambda: value(scrape(serving.url), count, group="dp:pp0.tp1") == 1, "second group")
    assert value(scrape(serving.url), count, group="dp") is None
    assert value(scrape(serving.url), "argus_group_expected_ranks", rank="1") == 1


def test_a_wrong_topology_is_refused_and_the_old_one_kept(
    tmp_path: Path, config_file: Path, serving: Serving
):
    """With the file of the topology and its key."""
    topology = tmp_path / "topology.yaml"
    topology.write_text("job: {sizes: {dp: none}}\n")
    config_file.write_text(f"topology: {{file: {topology}}}\n")
    serving.process.send_signal(signal.SIGHUP)
    metric = "argus_exporter_config_last_reload_successful"
    wait_for(lambda: value(scrape(serving.url), metric) == 0, "refusal")
    assert "topology.yaml: job.sizes.dp is 'none'; allowed: a whole number" in serving.log.read_text()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--config", "absent.yaml"), "absent.yaml: cannot read"),
        (("--config", "users.yaml"), "users.yaml: socket.allowed_users: there is no user 'nemo'"),
        (("--config", "topology.yaml"), "nowhere.yaml: cannot read the topology: No such file"),
        (("--config", "write.yaml"), "remote_write.url is 'there'; allowed: http://... or https://..."),
        (("--web.listen-address", "nonsense"), "listen address 'nonsense'"),
        (("--web.listen-address", "127.0.0.1:99999"), "a port of 0 to 65535"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(tmp_path: Path, options: tuple[str, ...], says: str):
    """No traceback; the message says what is allowed."""
    (tmp_path / "users.yaml").write_text("socket: {allowed_users: [nemo]}")
    (tmp_path / "topology.yaml").write_text("topology: {file: nowhere.yaml}")
    (tmp_path / "write.yaml").write_text("remote_write: {url: there}")
    command = [sys.executable, "-m", "argus_exporter.cli", "serve", "--socket", str(tmp_path / "s")]
    result = subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=30, check=False, cwd=tmp_path
    )
    assert result.returncode == 2
    (line,) = result.stderr.strip().splitlines()
    assert says in line
