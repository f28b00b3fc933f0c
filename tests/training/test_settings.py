"""The table of environment variables: parsing, and what is said about values that cannot be used."""

from __future__ import annotations

import dataclasses

import pytest

from argus_training.settings import TABLE, Settings, read


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
