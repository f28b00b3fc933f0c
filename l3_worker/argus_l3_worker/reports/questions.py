"""What a card says, from questions.json: each of its numbers is the answer to one query.

The file is made of jsonnet/card/questions.libsonnet, as is the annotation `card` of the alerts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

_NAME: Final = re.compile(r"<([a-z][a-z_.0-9]*)>")


@dataclass(frozen=True)
class Question:
    """A number: its path in the JSON, unit, what measures it, what people read before it, and the query.

    Attributes:
        says: where it stands on a card (two digits: line and place), and in which words; # is the number.
    """

    id: str
    unit: str
    source: str
    claim: str
    query: str
    says: Mapping[str, str]


@cache
def table() -> Mapping[str, Any]:
    """All of the file, by its sections."""
    text = files("argus_l3_worker.reports").joinpath("questions.json").read_text("utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


def questions(section: str, kind: str = "") -> Iterator[Question]:
    """Those of a section, or of a kind within it."""
    rows = table()[section][kind] if kind else table()[section]
    return (Question(*row) for row in rows)


def filled(text: str, values: Mapping[str, str]) -> str:
    """A text with its values; empty where one is not known."""
    if not all(values.get(name) for name in _NAME.findall(text)):
        return ""
    return _NAME.sub(lambda found: values[found[1]], text)


def quoted(text: str) -> str:
    """A value of a matcher; empty where the text is."""
    return json.dumps(text, ensure_ascii=False) if text else ""


def beginning(words: str) -> str:
    """Of what a row of the table of causes says, up to the first sign."""
    return re.split("[;,:] ", words)[0]


def page_of(cause: str, level: str) -> str:
    """Name of the runbook of what rules find."""
    of_jobs, of_others = table()["runbooks_of_jobs"], table()["runbooks"]
    page: str = (of_jobs if level == "L1" else of_others).get(cause) or of_jobs["other"]
    return page
