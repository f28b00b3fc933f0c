"""No class outgrows its reader. That none does is a part of `make lint` (test_lint.py)."""

from __future__ import annotations

from pathlib import Path

from tools.lint.classes import LONGEST, too_long


def test_a_class_that_is_too_long_is_named(tmp_path: Path) -> None:
    """One line more than allowed; a class of just as many is none."""
    folder = tmp_path / "exporter"
    folder.mkdir()
    fields = [f"    a{number} = 1" for number in range(LONGEST)]
    text = ["class Fits:", *fields[1:], "class Grown:", *fields]
    (folder / "module.py").write_text("\n".join(text))
    assert list(too_long(tmp_path)) == [
        f"{folder.name}/module.py:{LONGEST + 1}: class Grown has {LONGEST + 1} lines; allowed: {LONGEST}"
    ]
