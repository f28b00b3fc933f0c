"""The table of environment variables: parsing, and what is said about values that cannot be used."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import pytest

from argus_training.settings import HOOKS, RETIRED, TABLE, Settings, place, read


def test_defaults_need_no_environment() -> None:
    """An empty environment is valid and silent."""
    settings, warnings = read({})
    assert warnings == []
    assert not settings.disable
    assert settings.cupti_buffers == 32


def test_every_variable_is_a_field() -> None:
    """Table and type name the same variables."""
    fields = [f"ARGUS_{field.name.upper()}" for field in dataclasses.fields(Settings)]
    assert fields == [variable.name for variable in TABLE]


def test_values_are_converted() -> None:
    """Flags, numbers and lists."""
    settings, warnings = read(
        {"ARGUS_DISABLE_PHASES": "1", "ARGUS_CUPTI_BUFFERS": "64", "ARGUS_DISABLE_HOOKS": "gc, data"}
    )
    assert warnings == []
    assert (settings.disable_phases, settings.cupti_buffers) == (True, 64)
    assert settings.disable_hooks == ("gc", "data")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ARGUS_DISABLE", "maybe"),
        ("ARGUS_CUPTI_BUFFERS", "1"),
        ("ARGUS_CUPTI_BUFFERS", "many"),
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


def test_a_variable_of_before_says_what_became_of_it() -> None:
    """Silence would leave somebody in the belief that it does something."""
    assert set(RETIRED).isdisjoint(variable.name for variable in TABLE)
    _, warnings = read({"ARGUS_EVENT_POOL": "64"})
    assert warnings[0].startswith("ARGUS_EVENT_POOL is no variable any more: 4096 CUDA events")


def test_the_file_beside_the_socket_fills_what_the_environment_leaves_open(tmp_path: Path) -> None:
    """A variable wins, also an empty one."""
    file = tmp_path / "exporter.sock.env"
    file.write_text("ARGUS_JOB=filed\nARGUS_CUPTI_BUFFERS=64\nARGUS_MODEL=llama\n")
    settings, warnings = read({"ARGUS_JOB": "named", "ARGUS_MODEL": ""}, str(file))
    assert (settings.job, settings.cupti_buffers, settings.model, warnings) == ("named", 64, "", [])


def test_what_is_wrong_in_the_file_is_said_as_for_a_variable_with_its_place(tmp_path: Path) -> None:
    """Also when the boot has put the value into the environment before; a variable's own value is its own."""
    file = tmp_path / "exporter.sock.env"
    file.write_text("ARGUS_CUPTI_BUFFERS=1\nARGUS_NONSENSE=1\n")
    wrong = [
        f"ARGUS_CUPTI_BUFFERS in {file} is '1'; allowed: a whole number of 2 or more; using 32",
        f"ARGUS_NONSENSE in {file} is no variable of ARGUS",
    ]
    assert read({}, str(file)) == (read({})[0], wrong)
    assert read({"ARGUS_CUPTI_BUFFERS": "1"}, str(file))[1] == wrong
    assert read({"ARGUS_CUPTI_BUFFERS": "0"}, str(file))[1][0].startswith(
        "ARGUS_CUPTI_BUFFERS is '0'; allowed:"
    )


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


def test_every_hook_can_be_left_out() -> None:
    """The list is written by hand: settings are read where nothing of torch's may be imported."""
    hooks = pytest.importorskip("argus_training.torch_hooks")
    assert sorted(hook.name for hook in hooks.ALL) == sorted(HOOKS)
