"""The command line: summaries people and machines read, one line for what is wrong, a served recording."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from argus_exporter.cli import main
from argus_exporter.replay.progress import NoProgress, shown
from argus_exporter.replay.reader import read_files
from argus_exporter.server import RunningExporter
from exporter.exporter_process import scrape, value, wait_for
from exporter.replay.synthetic import kernel, log, trace, training_trace, write

ARGUS_EXPORTER = [sys.executable, "-m", "argus_exporter.cli"]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    folder = tmp_path / "myjob"
    folder.mkdir()
    return [str(write(folder / f"rank{r}.json.gz", training_trace(rank=r))) for r in range(2)]


def test_summary_shows_ranks_kernels_and_spread(files: list[str], capsys: pytest.CaptureFixture[str]):
    """Per rank: steps, mean, events, pairs, NCCL time; then kernels with modes; then medians across ranks."""
    assert main(["replay", *files]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^ +0 +4 +990 us +40 +3 +912 us +400 us +myjob ", out, re.MULTILINE)
    assert "phases (mean): forward 400 us" in out
    assert re.search(
        r"^ +43.9% +4 +nccl0 +ncclDevKernel_AllReduce_Sum_f32 +4 x 100 us \(100 us\)$", out, re.MULTILINE
    )
    assert re.search(r"^ +2 +100 us +100 us +1.000 +0 +nccl0 .*collective: who comes last", out, re.MULTILINE)


def test_summary_for_machines_is_json(files: list[str], capsys: pytest.CaptureFixture[str]):
    """Base units, and the same numbers."""
    assert main(["replay", "--json", "--job", "other", *files]) == 0
    summary = json.loads(capsys.readouterr().out)
    rank = summary["ranks"][1]
    assert (rank["rank"], rank["training_job"], rank["steps"], rank["kernel_events"]) == (1, "other", 4, 40)
    assert rank["iteration_mean_seconds"] == pytest.approx(990e-6)
    assert rank["collective_seconds"] == pytest.approx(4 * 100e-6)
    nccl = next(pair for pair in rank["pairs"] if pair["stream"] == "nccl0")
    assert nccl["modes"]["modes"] == [{"count": 4, "p50": pytest.approx(1e-4), "p99": pytest.approx(1e-4)}]
    assert {spread["ranks"] for spread in summary["across_ranks"]} == {2}


def test_event_log_without_kernels_is_summarised(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Phases alone are data."""
    span = {"rank": 0, "step": 1, "phase": "forward", "kind": "compute", "start": 1, "duration": 0.25}
    assert main(["replay", str(write(tmp_path / "e.jsonl", log(span)))]) == 0
    assert "phases (mean): forward 250 ms" in capsys.readouterr().out


def test_resampled_summary(files: list[str], capsys: pytest.CaptureFixture[str]):
    """Without --serve the made fleet is summarised."""
    assert (
        main(
            [
                "replay",
                "--resample-ranks",
                "3",
                "--stretch",
                "1=2",
                "--resample-steps",
                "40",
                "--json",
                *files,
            ]
        )
        == 0
    )
    ranks = json.loads(capsys.readouterr().out)["ranks"]
    p50 = [next(p["p50_seconds"] for p in rank["pairs"] if p["kernel"] == "gemm") for rank in ranks]
    assert p50[1] / p50[0] == pytest.approx(2, rel=0.05)
    assert p50[2] / p50[0] == pytest.approx(1, rel=0.05)


WRONG = {
    "absent file": (["absent.json"], r"absent\.json: cannot be read: No such file or directory"),
    "no rank": (["trace.json"], r"trace\.json: the rank is unknown; allowed: "),
    "stretch alone": (["rank0.json", "--stretch", "0=2"], "--stretch needs --resample-ranks"),
    "stretched rank": (
        ["rank0.json", "--stretch", "8=2", "--resample-ranks", "8"],
        "--stretch names rank 8; allowed with --resample-ranks 8: 0 to 7",
    ),
    "loop alone": (["rank0.json", "--loop"], "--loop needs --serve"),
    "loop at once": (
        ["rank0.json", "--serve", "--loop", "--speed", "0"],
        "--loop at --speed 0 would never sleep",
    ),
    "nobody there": (["rank0.json", "--serve", "--to-socket", "absent.sock"], "no exporter listens there"),
    "listen address": (
        ["rank0.json", "--serve", "--web.listen-address", "x"],
        "listen address 'x' is not HOST:PORT",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_use_ends_with_one_line_and_status_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], case: str
):
    """No traceback, nothing on stdout."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "trace.json", trace(kernel()))
    write(tmp_path / "rank0.json", training_trace(rank=0))
    arguments, message = WRONG[case]
    assert main(["--log.level", "error", "replay", *arguments]) == 2
    captured = capsys.readouterr()
    assert re.fullmatch(f"argus-exporter: .*{message}.*\n", captured.err)
    assert captured.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--speed", "-1"],
        ["--speed", "nan"],
        ["--stretch", "3"],
        ["--stretch", "3=0"],
        ["--resample-ranks", "0"],
        ["--seed", "x"],
    ],
)
def test_wrong_values_are_refused_by_the_parser(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    """With what is allowed, and status 2."""
    with pytest.raises(SystemExit) as caught:
        main(["replay", "x.json", *arguments])
    assert caught.value.code == 2
    assert "allowed: " in capsys.readouterr().err


def served(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    """A replay process, and the URL that it says it serves."""
    command = [
        *ARGUS_EXPORTER,
        "--log.level",
        "error",
        "replay",
        "--serve",
        "--web.listen-address",
        "127.0.0.1:0",
    ]
    process = subprocess.Popen([*command, *arguments], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.search(r"(http://127\.0\.0\.1:\d+)/metrics$", line.strip())
    assert found, line
    return process, found[1]


def test_served_loop_runs_until_interrupted(files: list[str]):
    """Says where it serves, plays every rank, and ends with status 0 on Ctrl-C."""
    process, url = served("--loop", *files)
    try:
        wait_for(
            lambda: (value(scrape(url), "argus_iteration_last_step", rank="1") or 0) > 100, "step 100", 30
        )
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 0
    assert re.search(r"^argus-exporter: ended after step \d+, [\d,]+ kernel records$", err, re.MULTILINE)


def test_served_recording_ends_by_itself(files: list[str]):
    """Without --loop and --keep, serving ends with the recording."""
    process, _ = served(*files)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "ended after step 8, 80 kernel records" in err


def test_keep_serves_the_last_state(files: list[str]):
    """Until SIGTERM."""
    process, url = served("--keep", *files)
    try:
        wait_for(lambda: value(scrape(url), "argus_iteration_last_step", rank="0") == 8, "the end", 30)
        assert process.poll() is None
        process.terminate()
        process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 0


def test_plays_to_an_exporter_that_runs_already(files: list[str], running: RunningExporter):
    """--to-socket starts none."""
    command = [*ARGUS_EXPORTER, "replay", "--serve", "--keep", "--to-socket", str(running.socket), *files]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: value(scrape(running.url), "argus_iteration_last_step", rank="1") == 8, "step 8", 30)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_terminal_shows_a_bar_that_names_the_file_being_read(files: list[str]):
    """One bar over all files, at all of their bytes in the end, and cleared."""
    paths = [Path(name) for name in files]
    terminal = Terminal()
    with shown(paths, terminal, delay_s=0) as progress:
        read_files(paths, progress=progress)
    text = terminal.getvalue()
    assert "reading 2/2 rank1.json.gz" in text
    assert text.endswith("\r")
    counted = Counted()
    read_files(paths, progress=counted)
    assert counted.read == [path.stat().st_size for path in paths]


class Counted(NoProgress):
    def __init__(self) -> None:
        self.read: list[int] = []

    def begin(self, path: Path) -> None:
        assert path.is_file()
        self.read.append(0)

    def advance(self, read: int) -> None:
        self.read[-1] += read


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_no_bar_without_a_terminal_or_when_quiet(files: list[str], stream: io.StringIO | None):
    """A log keeps its lines."""
    paths = [Path(name) for name in files]
    where = Terminal() if stream is None else stream
    with shown(paths, where, quiet=stream is None, delay_s=0) as progress:
        read_files(paths, progress=progress)
    assert where.getvalue() == ""


def test_small_files_on_a_terminal_show_no_bar(files: list[str]):
    """They are read before it would be of use: nothing but the summary is printed."""
    leader, follower = os.openpty()
    process = subprocess.run(
        [*ARGUS_EXPORTER, "replay", *files], stderr=follower, stdout=subprocess.PIPE, check=True, timeout=60
    )
    os.set_blocking(leader, False)
    with pytest.raises(BlockingIOError):
        os.read(leader, 1)
    os.close(follower)
    os.close(leader)
    assert process.stdout.startswith(b"rank")


def test_taken_port_is_said_in_one_line(files: list[str], running: RunningExporter):
    """With what to do."""
    taken = running.url.removeprefix("http://")
    process = subprocess.run(
        [*ARGUS_EXPORTER, "--log.level=error", "replay", "--serve", f"--web.listen-address={taken}", *files],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    assert process.returncode == 2
    assert re.fullmatch(r"argus-exporter: cannot listen on .*; name another .*\n", process.stderr)
    assert urllib.request.urlopen(f"{running.url}/healthz", timeout=10).status == 200
