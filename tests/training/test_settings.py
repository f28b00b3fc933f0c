"""The table of environment variables: parsing, and what is said about values that cannot be used."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import pytest

from argus_training.settings import TABLE, Settings, place, read


def test_defaults_need_no_environment() -> None:
    """An empty environment is valid and silent."""
    settings, warnings = read({})
    assert warnings == []
    assert not settings.disable
    assert settings.event_pool == 4096


def test_every_variable_is_a_field() -> None:
    """Table and type name the same variables."""
    fields = [f"ARGUS_{field.name.upper()}" for field in dataclasses.fields(Settings)]
    assert fields == [variable.name for variable in TABLE]


def test_values_are_converted() -> None:
    """Flags, numbers and lists."""
    settings, warnings = read(
        {"ARGUS_DISABLE_PHASES": "1", "ARGUS_EVENT_POOL": "64", "ARGUS_DISABLE_HOOKS": "gc, data"}
    )
    assert warnings == []
    assert (settings.disable_phases, settings.event_pool) == (True, 64)
    assert settings.disable_hooks == ("gc", "data")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ARGUS_DISABLE", "maybe"),
        ("ARGUS_EVENT_POOL", "1"),
        ("ARGUS_EVENT_POOL", "many"),
        ("ARGUS_DISABLE_HOOKS", "gc,nonsense"),
    ],
)
def test_unusable_value_is_said_and_default_used(name: str, value: str) -> None:
    """The training goes on with the default; the sentence names variable, value and what is allowed."""
    settings, warnings = read({name: value})
    assert settings == read({})[0]
    (warning,) = warnings
    assert name in warning
    assert repr(value) in warning
    assert "allowed" in warning


def test_typing_error_is_recognised() -> None:
    """Almost one of ours is worth a word; other components' variables are not."""
    _, warnings = read({"ARGUS_DISABLE_PHASE": "1", "ARGUS_NO_NATIVE": "1", "ARGUS_TRACES": "x"})
    assert warnings == ["ARGUS_DISABLE_PHASE is no variable of ARGUS; did you mean ARGUS_DISABLE_PHASES?"]


def test_the_file_beside_the_socket_fills_what_the_environment_leaves_open(tmp_path: Path) -> None:
    """A variable wins, also an empty one."""
    file = tmp_path / "exporter.sock.env"
    file.write_text("ARGUS_JOB=filed\nARGUS_EVENT_POOL=64\nARGUS_MODEL=llama\n")
    settings, warnings = read({"ARGUS_JOB": "named", "ARGUS_MODEL": ""}, str(file))
    assert (settings.job, settings.event_pool, settings.model, warnings) == ("named", 64, "", [])


def test_what_is_wrong_in_the_file_is_said_as_for_a_variable_with_its_place(tmp_path: Path) -> None:
    """Also when the boot has put the value into the environment before; a variable's own value is its own."""
    file = tmp_path / "exporter.sock.env"
    file.write_text("ARGUS_EVENT_POOL=1\nARGUS_NONSENSE=1\n")
    wrong = [
        f"ARGUS_EVENT_POOL in {file} is '1'; allowed: a whole number of 2 or more; using 4096",
        f"ARGUS_NONSENSE in {file} is no variable of ARGUS",
    ]
    assert read({}, str(file)) == (read({})[0], wrong)
    assert read({"ARGUS_EVENT_POOL": "1"}, str(file))[1] == wrong
    assert read({"ARGUS_EVENT_POOL": "0"}, str(file))[1][0].startswith("ARGUS_EVENT_POOL is '0'; allowed:")


def test_while_other_threads_run_the_environment_stays(tmp_path: Path) -> None:
    """The injector reads variables alone: what it then does not know is said."""
    file = tmp_path / "exporter.sock.env"
    file.write_text("ARGUS_JOB=filed\nARGUS_MODEL=llama\n")
    environ: dict[str, str] = {}
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        why = place(environ, str(file))
    finally:
        end.set()
        thread.join()
    assert environ == {}
    assert why.startswith(f"kernels are recorded without ARGUS_JOB of {file}: other threads run")
