"""`make check`: what is run at every commit.

pytest's option --check leaves out tests of the kinds that take long, and fails any other that starts a server
or needs more time than a commit has.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

KINDS: Final = ("e2e", "servers", "torch", "beside_others", "slow")
"""Marks of the tests that are left out."""
FIXTURES: Final = frozenset(
    ("alertmanager", "chromium", "guarded", "injector", "moto", "plain", "prometheus", "receiver")
)
"""Start a server or build native code: whoever uses one is left out as if so marked."""
SERVERS: Final = frozenset(
    ("prometheus", "alertmanager", "victoria-metrics", "vmalert", "moto.server", "node", "chromium")
)
"""Programs that make a test one of `servers`."""
MOST_CPU_SECONDS: Final = 3.0
"""Of a test and of the processes that it has waited for, on a machine that does `_reference` in its seconds.

Wall time depends on what else the machine does, and CPU seconds on what it is and on its neighbours.
"""
REFERENCE_SECONDS: Final = 0.05
"""Where 3 s were set; inferred: 0.11 on cores that need 2.3 times as long for the mixin by C++ jsonnet."""


class Check:
    """Fails tests that are not what `make check` takes them for."""

    def __init__(self) -> None:
        self._started: set[str] = set()
        sys.addaudithook(self._watch)

    def _watch(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            words = (os.fsdecode(word) for word in (arguments[0], *arguments[1][1:]))
            self._started |= SERVERS & {Path(word).name for word in words}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        left_out = {one for one in items if any(map(one.get_closest_marker, KINDS)) or _fixtures(one)}
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [one for one in items if one not in left_out]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        with self._watched():
            yield

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        with self._watched():
            yield

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        self._started.clear()
        before = _cpu_seconds()
        yield
        taken = _cpu_seconds() - before
        if self._started:
            pytest.fail(f"it starts {', '.join(self._started)}: mark it `servers`", pytrace=False)
        if taken > MOST_CPU_SECONDS:
            most = MOST_CPU_SECONDS * max(1.0, _reference() / REFERENCE_SECONDS)
            if taken > most:
                said = f"it takes {taken:.1f} s of CPU, of at most {most:.1f} on this machine now"
                pytest.fail(f"{said}: make it less, or mark it `slow`", pytrace=False)


def _fixtures(item: pytest.Item) -> set[str]:
    return set(FIXTURES.intersection(getattr(item, "fixturenames", ())))


def _reference() -> float:
    """CPU seconds of work that is like that of most tests: many small objects."""
    before = time.process_time()
    assert len([{number: number} for number in range(300_000)]) == 300_000
    return time.process_time() - before


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
