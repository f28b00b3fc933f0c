"""Where the rules, the Alertmanager configuration and the programs are: the checkout and PATH."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from argus_simulator.stack.errors import StackError


def find_repository() -> Path:
    """The checkout: `ARGUS_REPO`, or the one that this package is installed from in editable mode.

    Raises:
        StackError: neither holds the rules.
    """
    named = os.environ.get("ARGUS_REPO")
    candidates = [Path(named)] if named else list(Path(__file__).resolve().parents)
    for folder in candidates:
        if (folder / "rules").is_dir() and (folder / "alertmanager").is_dir():
            return folder
    where = f"ARGUS_REPO={named}" if named else f"the package at {Path(__file__).resolve().parents[1]}"
    raise StackError(
        f"{where} is not in a checkout with rules/ and alertmanager/, which the stack runs on: "
        "set ARGUS_REPO to one, or install with `pip install -e .` in it"
    )


def rule_files(folder: Path) -> list[Path]:
    """The rules of a folder: `rules` of the checkout as they are shipped, `rules/test` at our pace (`pace`).

    Raises:
        StackError: there are none.
    """
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise StackError(f"no rules in {folder}; those of a checkout come from `make generate`")
    return files


def program(*names: str) -> str:
    """Path of the first program that exists, beside this Python or on PATH.

    Raises:
        StackError: none exists.
    """
    for name in names:
        beside = Path(sys.executable).parent / name
        found = str(beside) if beside.is_file() else shutil.which(name)
        if found:
            return found
    raise StackError(f"{' or '.join(names)} is not on PATH; `make setup` installs what the stack needs")
