"""Classes that have outgrown what a reader can hold: to be divided along what they do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.lint.sources import ROOT

LONGEST: Final = 250
"""Lines, docstrings among them: five screens."""
FOLDERS: Final = ("bench", "dashboards", "exporter", "l3_worker", "simulator", "tests", "tools")


def too_long(root: Path = ROOT) -> Iterator[str]:
    """Classes of more lines."""
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*.py")):
            text = file.read_text(encoding="utf-8")
            if text.count("\n") < LONGEST:
                continue  # nine files of ten: parsing is what takes the time
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ClassDef):
                    lines = (node.end_lineno or node.lineno) - node.lineno + 1
                    if lines > LONGEST:
                        where = f"{file.relative_to(root)}:{node.lineno}"
                        yield f"{where}: class {node.name} has {lines} lines; allowed: {LONGEST}"
