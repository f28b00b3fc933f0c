"""`--config FILE`, `--help-config`, and flags that override single keys of the file."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from argus_core.command_line import Prints
from argus_core.settings import document, load, override

T = TypeVar("T")

_KEY: Final = "config."
"""What the destinations of flags begin with: an option of a command may be named as a key is."""


@dataclass(frozen=True)
class Flag:
    """A flag that overrides one key; `type` makes the key's value of its text."""

    name: str
    key: str
    metavar: str
    type: Callable[[str], Any] = str


def add_config(parser: argparse.ArgumentParser, config: type[Any], flags: Sequence[Flag] = ()) -> None:
    """The options of a command that reads the configuration."""
    group = parser.add_argument_group("configuration")
    group.add_argument("--config", type=Path, metavar="FILE", help="configuration file (YAML)")
    group.add_argument(
        "--help-config",
        action=Prints,
        text=lambda _: described(config),
        help="print every key of the file and exit",
    )
    known = {key: (default, meaning) for key, _, default, meaning in document(config)}
    for flag in flags:
        default, meaning = known[flag.key]
        text = f"{meaning} (default: {_shown(default)}; overrides {flag.key})"
        group.add_argument(
            flag.name,
            dest=_KEY + flag.key,
            type=flag.type,
            metavar=flag.metavar,
            help=text.replace("%", "%%"),
        )


def read_config(config: type[T], options: argparse.Namespace) -> T:
    """What file and flags of a command line say.

    Raises:
        SettingsError: the file or a flag cannot be used.
    """
    read = load(config, options.config)
    for name, value in vars(options).items():
        if name.startswith(_KEY) and value is not None:
            read = override(read, name.removeprefix(_KEY), value)
    return read


def described(config: type[Any]) -> str:
    """Every key, what it may be, its default and what it is for."""
    return "\n".join(
        f"{key} ({allowed}; default {_shown(default)})\n    {meaning}"
        for key, allowed, default, meaning in document(config)
    )


def _shown(default: object) -> str:
    return "none" if default in (None, "", (), {}) else str(default)
