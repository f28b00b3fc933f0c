"""References in code and pages that lead out of this repository, or nowhere.

Who reads "see docs/evidence/modes.md" beside a constant must be able to open it. Links of pages are checked
as links (tests/docs, `runbooks.dead_links`); here it is what stands in comments, docstrings and prose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tools.lint.sources import ROOT

_SUFFIXES = frozenset(
    {".py", ".md", ".libsonnet", ".jsonnet", ".hpp", ".cpp", ".h", ".yaml", ".yml", ".toml", ".sh", ".tmpl"}
)
_FOLDERS = (
    "alertmanager", "bench", "dashboards", "deploy", "docs", "exporter", "jsonnet", "l3_worker", "native",
    "rules", "simulator", "tests", "tools",
)  # fmt: skip
_PAGE = re.compile(r"(?<![\w./{}<>*-])((?:\.{0,2}/)?[\w-]+(?:[./][\w-]+)*\.md)\b(?![\w/])")
_PATH = re.compile(
    rf"(?<![\w./{{}}<>*-])((?:{'|'.join(_FOLDERS)})/[\w./-]*\w\.(?:py|md|libsonnet|jsonnet|hpp|cpp|ya?ml|json|sh))\b"
)
_UNPUBLISHED = re.compile(r"\b(?:DESIGN|FAULTS|FINDINGS)\b(?= section|\.md| row| [A-Z]?\d)|\bresearch/\w+")
"""Notes that were written before the code and are not part of it."""
_ELSEWHERE = {
    "docs/web-configuration.md": "of the Prometheus exporter toolkit",
    "docs/runbooks/NAME.md": "a pattern",
}
_UNCHECKED = frozenset(
    {"tools/lint/citations.py", "tests/tools/test_citations.py", "tests/tools/test_lint.py", "CHANGELOG.md"}
)
"""These name what is not there on purpose: this check, the tests of checks, and what was."""


def unfound(root: Path = ROOT) -> Iterator[str]:
    """Files that code or pages cite, and that are not in the repository."""
    for file in _texts(root):
        where = file.relative_to(root)
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            for cited in _cited(line):
                if cited not in _ELSEWHERE and not _exists(cited, file, root):
                    yield f"{where}:{number}: cites {cited}, which is not in this repository"
            for name in _UNPUBLISHED.findall(line):
                yield f"{where}:{number}: cites {name}, which is not in this repository"


def _texts(root: Path) -> Iterator[Path]:
    tops = [root / folder for folder in _FOLDERS if (root / folder).is_dir()]
    files = [file for file in root.iterdir() if file.is_file()] + [f for top in tops for f in top.rglob("*")]
    for file in sorted(files):
        hidden = any(part.startswith((".", "__")) for part in file.relative_to(root).parts[:-1])
        if file.suffix in _SUFFIXES and not hidden and str(file.relative_to(root)) not in _UNCHECKED:
            yield file


def _cited(line: str) -> set[str]:
    # An address is somebody else's; a pattern or a template names no file.
    plain = re.sub(r"\w+://\S+|%s\S*", " ", line)
    return {*_PAGE.findall(plain), *_PATH.findall(plain)}


def _exists(cited: str, file: Path, root: Path) -> bool:
    """From a folder that the file is in, or from docs/ and its folders, where pages name one another."""
    docs = root / "docs"
    within = (folder for folder in file.parents if folder.is_relative_to(root))
    bases = (*within, docs, docs / "runbooks", docs / "evidence")
    return any((base / cited).resolve().is_file() for base in bases)
