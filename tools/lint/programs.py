"""What the real programs say of the generated files."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.lint.sources import FLAVOURS, ROOT


def refused_rules(root: Path = ROOT) -> Iterator[str]:
    """promtool check rules, with its lint for duplicates, on every flavour."""
    for flavour in FLAVOURS:
        files = sorted((root / flavour).glob("*.yaml"))
        yield from _complaints(["promtool", "check", "rules", "--lint=all", "--lint-fatal"], files)


def refused_configurations(root: Path = ROOT) -> Iterator[str]:
    """amtool check-config on every Alertmanager configuration."""
    yield from _complaints(["amtool", "check-config"], sorted((root / "alertmanager").glob("*.yaml")))


def _complaints(command: Sequence[str], files: Sequence[Path]) -> Iterator[str]:
    if not files:
        yield f"{' '.join(command)}: no files to check"
        return
    run = subprocess.run([*command, *map(str, files)], capture_output=True, text=True, check=False)
    if run.returncode:
        yield f"{' '.join(command)}:\n{run.stdout}{run.stderr}"
