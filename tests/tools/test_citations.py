"""What code and pages cite is in the repository."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.lint import citations


def test_every_cited_file_is_there() -> None:
    """Comments, docstrings and prose: who reads "see FILE" can open it."""
    assert list(citations.unfound()) == []


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with a page and a module."""
    for folder in ("docs/evidence", "bench", "jsonnet/lib", "jsonnet/rules"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "docs/evidence/modes.md").write_text("# Modes\n")
    (tmp_path / "bench/modes.py").write_text("")
    (tmp_path / "jsonnet/rules/host.libsonnet").write_text("{}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "cited"),
    [
        ("# 0.85: docs/evidence/mode.md", "docs/evidence/mode.md"),
        ("Source: numerics.md A3.", "numerics.md"),
        ("as (../shared/notes.md) says", "../shared/notes.md"),
        ("`python bench/moods.py`", "bench/moods.py"),
        ("Source: DESIGN section 8.", "DESIGN"),
        ("Source: FAULTS.md ecc-intermittent", "FAULTS"),
        ("twice, research/promql 1.2", "research/promql"),
    ],
)
def test_what_is_not_there_is_named(root: Path, line: str, cited: str) -> None:
    (root / "bench/l3.py").write_text(f'"""A bench.\n\n{line}\n"""\n')
    found = list(citations.unfound(root))
    assert f"bench/l3.py:3: cites {cited}, which is not in this repository" in found


@pytest.mark.parametrize(
    "line",
    [
        "# 0.85: docs/evidence/modes.md",
        "# modes.md has it, by bench/modes.py",
        "# https://example.com/docs/other.md",
        "# docs/runbooks/%s.md and docs/{name}.md",
        "# ARGUS section 5.2, the design of it, FAULTS = 3",
    ],
)
def test_what_is_there_or_is_no_file_is_not_named(root: Path, line: str) -> None:
    (root / "bench/l3.py").write_text(f"{line}\n")
    assert list(citations.unfound(root)) == []


def test_a_file_is_found_from_any_folder_that_the_citing_one_is_in(root: Path) -> None:
    (root / "jsonnet/lib/alert.libsonnet").write_text("// rules/host.libsonnet\n{}\n")
    assert list(citations.unfound(root)) == []
