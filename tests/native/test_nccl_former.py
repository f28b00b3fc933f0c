"""libargus_nccl before a plugin that was configured already: that sees what NCCL would tell it alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from native.builds import FORMER_VERSIONS, Build
from native.nccl_host import Counted, call, operation

ALL_OF_V5 = 0xFFF
NONE_WRONG = ("wrong_contexts", "wrong_handles", "wrong_parents")


def behind(
    build: Build,
    folder: Path,
    host: int,
    version: int,
    *actions: str,
    mask: int = ALL_OF_V5,
    **variables: str,
) -> tuple[Counted, dict[str, Any]]:
    """A run with the former plugin of `version` behind ours, and what it saw."""
    report = folder / "former"
    report.unlink(missing_ok=True)
    seen = call(
        build,
        folder,
        host,
        *actions,
        ARGUS_NEXT_PROFILER=str(build.former(version)),
        FORMER_REPORT=str(report),
        FORMER_MASK=mask,
        **variables,
    )
    return seen, json.loads(report.read_text()) if report.exists() else {}


def alone(
    build: Build, folder: Path, host: int, version: int, *actions: str, mask: int = ALL_OF_V5
) -> dict[str, Any]:
    """What it sees without ours."""
    report = folder / "former"
    call(
        build,
        folder,
        host,
        *actions,
        library=build.former(version),
        FORMER_REPORT=str(report),
        FORMER_MASK=mask,
    )
    seen: dict[str, Any] = json.loads(report.read_text())
    return seen


def test_it_sees_all_while_ours_does_not_watch(plain: Build, tmp_path: Path) -> None:
    seen, with_ours = behind(
        plain, tmp_path, 5, 5, "init:2", "watch:0", "train:2:2", "finalize", mask=ALL_OF_V5
    )
    assert with_ours == alone(plain, tmp_path, 5, 5, "init:2", "train:2:2", "finalize")
    assert seen.report["mask"] == ALL_OF_V5


@pytest.mark.parametrize("mask", [0x2, 0x6, 0x16, 0x816, ALL_OF_V5], ids=hex)
@pytest.mark.parametrize("version", FORMER_VERSIONS)
def test_a_plugin_of_the_hosts_version_sees_all_that_it_sees_alone(
    plain: Build, tmp_path: Path, version: int, mask: int
) -> None:
    """Whatever it asks for, and although ours asks for more: the same events, records, stops and parents."""
    actions = ("init:2", "train:2:2", "finalize")
    seen, with_ours = behind(plain, tmp_path, version, version, *actions, mask=mask)
    assert with_ours == alone(plain, tmp_path, version, version, *actions, mask=mask)
    assert seen.page.former == "chained"
    assert operation(seen.communicator(), "AllReduce").count == 2


@pytest.mark.parametrize("version", FORMER_VERSIONS)
def test_a_plugin_of_an_older_version_is_told_in_its_own(
    injector: Build, tmp_path: Path, version: int
) -> None:
    """On a host of version 7, with contexts, handles and parents of its own, also under sanitizers."""
    seen, former = behind(injector, tmp_path, 7, version, "init:2", "train:2:2", "finalize")
    assert not any(former[name] for name in (*NONE_WRONG, "orphans"))
    assert (former["inits"], former["finals"]) == (2, 2)
    # groups, collectives, calls, operations and steps with two thirds of the receives' starts repeated
    assert former["by_type"][:5] == [12, 12, 8, 56, 400]
    assert former["all_reduces"] == 4
    assert former["sent"] == 100 * 4096
    assert former["named"] == (12 if version <= 3 else 0)
    assert seen.report["mask"] == ALL_OF_V5
    assert operation(seen.communicator(), "AllReduce").count == 2


@pytest.mark.parametrize("version", [1, 4, 5, 7])
def test_a_plugin_that_fails_is_left_behind(plain: Build, tmp_path: Path, version: int) -> None:
    seen, _ = behind(plain, tmp_path, 7, version, "init:2", "train:2:1", FORMER_FAILS="1")
    assert seen.page.former == "failed"
    assert operation(seen.communicator(), "AllReduce").count == 2
    assert seen.said.count("failed in its init") == 1
    assert seen.report["mask"] == 0x816


def test_a_plugin_that_cannot_be_loaded_is_named(plain: Build, tmp_path: Path) -> None:
    seen = call(plain, tmp_path, 7, "init:1", "train:1:0", ARGUS_NEXT_PROFILER="/nowhere/libnone.so")
    assert seen.page.former == "missing"
    assert "/nowhere/libnone.so" in seen.said


@pytest.mark.parametrize("name", ["libnccl-profiler.so", "libnccl-profiler-mine.so", "libother.so"])
def test_it_is_looked_for_as_nccl_would(plain: Build, tmp_path: Path, name: str) -> None:
    """By name, by the name in NCCL's own, and where nothing was configured by that alone."""
    shutil.copy(plain.former(6), tmp_path / name)
    value = {"libnccl-profiler.so": "", "libnccl-profiler-mine.so": "mine"}.get(name, name)
    places = f"{plain.nccl_app.parent}:{tmp_path}"
    seen = call(plain, tmp_path, 7, "init:1", "train:1:0", ARGUS_NEXT_PROFILER=value, LD_LIBRARY_PATH=places)
    assert seen.page.former == "chained"


def test_none_is_none(plain: Build, tmp_path: Path) -> None:
    assert call(plain, tmp_path, 7, "init:1", ARGUS_NEXT_PROFILER="none").page.former == "none"


def test_a_plugin_that_is_newer_than_the_host_is_not_asked(plain: Build, tmp_path: Path) -> None:
    """NCCL would not ask it either."""
    seen, former = behind(plain, tmp_path, 5, 7, "init:1", "train:1:0")
    assert seen.page.former == "newer"
    assert not former


def test_a_plugin_may_change_what_it_asks_for(plain: Build, tmp_path: Path) -> None:
    """From its third collective on it asks for nothing: ours alone remains."""
    seen, former = behind(plain, tmp_path, 7, 7, "init:1", "train:3:1", FORMER_TOGGLES="3")
    assert former["by_type"][1] == 3
    assert seen.report["mask"] == 0x816


@pytest.mark.parametrize("version", [2, 5, 7])
def test_a_plugin_that_asks_for_less_hears_no_more_of_steps_that_have_stopped(
    injector: Build, tmp_path: Path, version: int
) -> None:
    """From its fourth collective on: the steps of later operations lie where the first round's did."""
    _, former = behind(injector, tmp_path, version, version, "init:1", "train:3:1", FORMER_TOGGLES="4")
    assert former["by_type"][4] > 0
    assert not any(former[name] for name in NONE_WRONG)


def test_a_plugin_is_chained_where_ours_is_switched_off(plain: Build, tmp_path: Path) -> None:
    """Ours stands aside, and the user's goes on as it would without us."""
    seen, former = behind(plain, tmp_path, 7, 6, "init:1", "train:2:1", ARGUS_DISABLE="1")
    assert (seen.page.state, seen.page.reason, seen.page.communicators) == ("declined", "disabled", ())
    assert former["by_type"][1] == 6
    assert seen.report["mask"] == ALL_OF_V5


def test_an_event_that_outlasts_the_ring_is_counted(plain: Build, tmp_path: Path) -> None:
    """A group of 17,000 calls: its end does not reach the plugin; the next launch is not timed from it."""
    seen, former = behind(plain, tmp_path, 7, 7, "init:1", "aged")
    assert (seen.page.stale_events, former["unstopped"]) == (1, 1)
    one = seen.communicator()
    assert one.launches == 3
    assert one.launch_ns < 100_000_000


@pytest.mark.parametrize("version", [2, 4, 6, 7])
@pytest.mark.parametrize("action", ["garbage:2000", "foreign", "late", "unstopped:9000", "threads:200"])
def test_no_handle_or_parent_of_another_reaches_it(
    injector: Build, tmp_path: Path, version: int, action: str
) -> None:
    """Whatever the host does: foreign and stale ones are dropped and counted."""
    seen, former = behind(injector, tmp_path, 7, version, "init:2", "train:1:1", action)
    assert not any(former[name] for name in NONE_WRONG)
    assert seen.page.former == "chained"
