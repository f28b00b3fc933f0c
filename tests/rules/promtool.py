"""promtool, run on documents that tests make."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not on PATH (part of Prometheus; tools/setup.sh)"
)
Document = dict[str, Any]
"""A test file of promtool's: `rule_files` (absolute), `group_eval_order`, `evaluation_interval`, `tests`."""

ENVIRONMENT: Final = {"GOGC": "400"}
"""Garbage is collected less often: saves a quarter of promtool's time and costs 200 MB."""


def promtool(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["promtool", *arguments],
        cwd=folder,
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )


def complaints(document: Document) -> str:
    """What promtool says of a document; nothing where all is as expected."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "test.yaml"
        file.write_text(json.dumps(document), encoding="utf-8")  # which is YAML
        done = promtool("test", "rules", str(file))
    return "" if done.returncode == 0 else done.stdout + done.stderr


def rules_of(files: Iterable[Path]) -> Document:
    """The files of rules in a document, and the order of their groups: promtool's own is random."""
    files = list(files)
    return {
        "rule_files": [str(file) for file in files],
        "group_eval_order": [name for file in files for name in _groups(file)],
    }


@functools.cache
def _groups(file: Path) -> tuple[str, ...]:
    content = yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return tuple(group["name"] for group in content["groups"])


Texts = dict[str, str]
"""Labels, or annotations."""
_ALERT = re.compile(r"^ *Labels:(\{.*\})\n *Annotations:(\{.*\}),? *$", re.M)
_PAIR = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*")')


def firing(document: Document, alerts: Iterable[str], at: str) -> list[tuple[Texts, Texts]]:
    """Labels and annotations of what fires at a time ("20m") in the only storage of a document."""
    (storage,) = document["tests"]
    none = [{"eval_time": at, "alertname": alert, "exp_alerts": []} for alert in alerts]
    said = complaints({**document, "tests": [{**storage, "alert_rule_test": none}]})
    assert "got:" in said or not said, said
    return [(_pairs(labels), _pairs(annotations)) for labels, annotations in _ALERT.findall(said)]


def _pairs(text: str) -> Texts:
    return {name: json.loads(value) for name, value in _PAIR.findall(text)}
