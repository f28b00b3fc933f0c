"""Ranks in containers: their PID namespace is not the exporter's, and their numbers mean nothing to it.

Real namespaces, as of a pod without `hostPID`: every rank's process is number 1 in its own.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest

from argus_simulator.stack.ports import free_port
from exporter.exporter_process import Samples, scrape, value, wait_for

CONTAINER = ("unshare", *(() if os.getuid() == 0 else ("--user", "--map-root-user")))
CONTAINER += ("--pid", "--fork", "--kill-child")
RANK = """
import os, sys
from pathlib import Path
from argus_core import wire
from argus_core.shared_page import PageWriter
from exporter.exporter_process import Rank
socket, number, generation = sys.argv[1:]
rank = Rank(Path(socket), int(number), page=PageWriter())
rank.link.add(wire.GarbageCollection(1, 1, 5, 0.5, int(generation)))
rank.iterate()
print(os.getpid(), flush=True)
input()
rank.link.close(0)
"""

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module", autouse=True)
def namespaces() -> None:
    """Whether this host lets us make some."""
    with contextlib.suppress(FileNotFoundError):
        if subprocess.run([*CONTAINER, "true"], capture_output=True, check=False).returncode == 0:
            return
    pytest.skip("no PID namespace can be made here")


@pytest.fixture(params=[True, False], ids=["exporter in a container", "exporter of the host"])
def exporter(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of an exporter that sees no rank's process, or all of them."""
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "argus_exporter.cli", "serve", "--socket", str(tmp_path / "s")]
    command += ["--web.listen-address", address]
    with started([*(CONTAINER if request.param else ()), *command]):
        url = f"http://{address}"
        wait_for(lambda: bool(answer(url)), "the exporter serves", 60)
        yield url


@contextlib.contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def rank(socket: Path, number: int, generation: int) -> Iterator[subprocess.Popen[str]]:
    """A process of that rank, which has collected garbage of one generation and waits for a line."""
    command = [sys.executable, "-c", RANK, str(socket), str(number), str(generation)]
    with started([*CONTAINER, *command]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n", "its number, as it sees it"
        yield process


def answer(url: str) -> Samples:
    with contextlib.suppress(urllib.error.URLError, ConnectionError):
        return scrape(url)
    return {}


def collections(url: str, number: int) -> set[str]:
    """Generations of which the rank's process has said that it collected garbage."""
    return {
        dict(labels)["generation"]
        for name, labels in scrape(url)
        if name == "argus_gc_pause_seconds_count" and ("rank", str(number)) in labels
    }


def is_up(url: str, number: int) -> float | None:
    return value(scrape(url), "argus_rank_up", rank=str(number))


def test_ranks_are_known_whatever_their_numbers_are(exporter: str, tmp_path: Path) -> None:
    """Two that have one number are two ranks; one that starts again is another process of its rank."""
    with rank(tmp_path / "s", 4, 0), rank(tmp_path / "s", 5, 1) as ends:
        wait_for(lambda: is_up(exporter, 4) == is_up(exporter, 5) == 1, "both ranks")
        assert (collections(exporter, 4), collections(exporter, 5)) == ({"0"}, {"1"})
        ends.communicate("\n", timeout=20)
        wait_for(lambda: is_up(exporter, 5) is None, "it said goodbye")
    wait_for(lambda: is_up(exporter, 4) == 0, "its process was killed")
    with rank(tmp_path / "s", 4, 2):
        wait_for(lambda: is_up(exporter, 4) == 1, "it is back")
        wait_for(lambda: collections(exporter, 4) == {"2"}, "what the old process did is not the new one's")
