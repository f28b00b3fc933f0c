"""The pages that people read: every Markdown file of the repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_SKIPPED = {".venv", ".git", "build", "dist", ".run", "node_modules"}
_FENCE = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.M | re.S)
_INLINE = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*)$", re.M)


@dataclass(frozen=True)
class Page:
    """One Markdown file."""

    path: Path
    text: str

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def prose(self) -> str:
        """Without fenced blocks."""
        return _FENCE.sub("", self.text)

    def blocks(self) -> list[tuple[str, str]]:
        """(language, content) of the fenced blocks."""
        return _FENCE.findall(self.text)

    def links(self) -> list[str]:
        """Targets of links, without those to other sites."""
        targets = _LINK.findall(re.sub(r"`[^`\n]*`", "", self.prose))
        return [target for target in targets if not re.match(r"[a-z]+:", target)]

    def anchors(self) -> set[str]:
        """What a link may name behind `#`: headings as GitHub writes them."""
        headings = (re.sub(r"[`*]", "", heading).strip().lower() for heading in _HEADING.findall(self.prose))
        return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}

    def commands(self) -> Iterator[str]:
        """Shell lines: behind `$` in console blocks, every line of other shell blocks, and inline code."""
        for language, content in self.blocks():
            if language in ("", "sh", "bash", "console"):
                for line in re.sub(r"\\\n\s*", " ", content).splitlines():
                    if language != "console" or line.lstrip().startswith("$ "):
                        yield re.sub(r"(^|\s)#.*", "", line.strip().removeprefix("$ ")).strip()
        yield from re.findall(r"^ {4,}\$? ?(argus-[^#\n]*[^#\s])", self.prose, re.M)  # indented blocks
        for code in _INLINE.findall(self.prose):
            yield " ".join(code.split())


def pages() -> list[Page]:
    """All of them, in order."""
    found = (path for path in ROOT.rglob("*.md") if not _SKIPPED & set(path.relative_to(ROOT).parts))
    return [Page(path, path.read_text()) for path in sorted(found)]
