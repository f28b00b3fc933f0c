"""exporter/argus_core/causes.py: the table of causes (jsonnet/causes.libsonnet) for programs.

`python -m tools.generate_causes` writes it; `--check` exits 1 when it is out of date. So rules, alerts, pages
and programs tell the same of a cause: who can mend it, and in which words.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import rjsonnet

from tools.generate_rules import ROOT
from tools.generated import write_or_check

_MODULE = Path("exporter/argus_core/causes.py")
_HEAD = '''"""The table of causes, for programs: who can mend what, and what people read of it.

Generated from jsonnet/causes.libsonnet by `make generate`; do not edit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
'''
Row = Mapping[str, Any]


def module(root: Path = ROOT) -> str:
    """The whole module."""
    rows: list[Row] = json.loads(rjsonnet.evaluate_file(str(root / "jsonnet" / "causes.libsonnet")))
    return "\n".join(
        [
            _HEAD,
            *_mapping("TEAMS", {_key(row): row["team"] for row in rows if "team" in row}),
            '"""Who can mend it, by the cause of the evidence; a hang by what hangs."""',
            "",
            *_mapping("WORDS", {_key(row): row["words"] for row in rows}),
            '"""What it is, in a sentence about a rank, a set, a group or the job."""',
            "",
            *_names("HANGS", (_key(row) for row in rows if row["as"] == "hang")),
            '"""Causes of whoever holds up a job that stands still."""',
            "",
            *_names("CONTEXT", (_key(row) for row in rows if row["as"] == "context")),
            '"""What is never named: it only excuses."""',
            "",
        ]
    )


def _key(row: Row) -> str:
    return str(row["cause"] if row["as"] == "hang" and "cause" in row else row["id"])


def _mapping(name: str, content: Mapping[str, str]) -> Iterator[str]:
    yield f"{name}: Final[Mapping[str, str]] = {{"
    for key, value in content.items():
        line = f"    {_quoted(key)}: {_quoted(value)},"
        # As `ruff format` would have it, which breaks no text.
        yield line if len(line) <= 110 else f"{line}  # noqa: E501"
    yield "}"


def _names(name: str, content: Iterable[str]) -> Iterator[str]:
    yield f"{name}: Final = ({', '.join(map(_quoted, content))})"


def _quoted(text: str) -> str:
    return json.dumps(text)


def main(arguments: Sequence[str] = ()) -> int:
    """0: written or up to date; 1: out of date."""
    return write_or_check({ROOT / _MODULE: module()}, check="--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
