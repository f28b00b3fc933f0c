"""What is checked, as it is committed: rules by flavour, dashboards, Markdown pages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FLAVOURS = ("rules", "rules/test")

_FENCE = re.compile(r"^( *)```\w*[^\n]*\n(.*?)^ *```", re.M | re.S)
_INLINE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Rule:
    """One recording or alerting rule, and where it stands."""

    where: str
    content: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.content.get("record") or self.content.get("alert"))

    @property
    def is_alert(self) -> bool:
        return "alert" in self.content

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.content.get("labels") or {})

    @property
    def expr(self) -> str:
        return str(self.content["expr"])


def rules(flavour: str, root: Path = ROOT) -> list[Rule]:
    """Every rule of one flavour."""
    found = []
    for file in sorted((root / flavour).glob("*.yaml")):
        for group in yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]:
            where = f"{file.relative_to(root)}: group {group['name']}"
            found += [Rule(where, content) for content in group["rules"]]
    return found


_QUERIES = ("expr", "query", "definition")


def dashboard_queries(root: Path = ROOT, keys: Sequence[str] = _QUERIES) -> Iterator[tuple[str, str]]:
    """(where, PromQL) of every target (`expr`), annotation and variable of the dashboards."""
    for file in sorted((root / "dashboards/generated").glob("*.json")):
        where = str(file.relative_to(root))
        yield from ((where, text) for text in _texts(json.loads(file.read_text(encoding="utf-8")), keys))


def _texts(value: Any, keys: Sequence[str], key: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _texts(item, keys, name)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, keys, key)
    elif isinstance(value, str) and key in keys:
        yield value


def pages(root: Path = ROOT) -> list[Path]:
    """The Markdown pages of README and docs/. Not the changelog, which names what was."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def code_of(page: Path) -> Iterator[str]:
    """Code blocks and inline code of a page."""
    text = page.read_text(encoding="utf-8")
    yield from (block for _, block in _FENCE.findall(text))
    yield from _INLINE.findall(_FENCE.sub("", text))
