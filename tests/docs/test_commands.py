"""A command in the documentation is known to its program, flags included; make targets and modules exist."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import io
import re
import shlex
import sys
from unittest import mock

import pytest

from .pages import ROOT, Page, pages

_PROGRAMS = {
    "argus-exporter": "argus_exporter.cli",
    "argus-l3-worker": "argus_l3_worker.cli",
    "argus-simulator": "argus_simulator.cli",
}


@functools.cache
def help_of(*words: str) -> str | None:
    """What `PROGRAM SUBCOMMAND... --help` prints; None where the program does not know the subcommand."""
    main = importlib.import_module(_PROGRAMS[words[0]]).main
    said = io.StringIO()
    with (
        mock.patch.object(sys, "argv", [*words, "--help"]),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        try:
            status = main()
        except SystemExit as end:
            status = end.code
    return None if status else said.getvalue()


def subcommands_of(*words: str) -> set[str]:
    """Names below PROGRAM SUBCOMMAND..., read from its help."""
    text = help_of(*words) or ""
    section = re.search(r"^(?:commands|positional arguments):\n(.*?)(?:\n\n|\Z)", text, re.M | re.S)
    listed = re.findall(r"^ {2,4}([a-z][\w-]*)(?: |$)", section.group(1), re.M) if section else []
    return {name for name in listed if help_of(*words, name) not in (None, text)} if section else set()


def defect(line: str) -> str | None:
    """What is wrong with one shell line that starts one of our programs."""
    try:
        words = shlex.split(line)
    except ValueError:
        return None  # a fragment
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    path, rest = [words[0]], words[1:]
    while rest and not rest[0].startswith("-"):
        known = subcommands_of(*path)
        if not known or rest[0] not in known:
            if known and len(path) == 1 and re.fullmatch(r"[a-z][\w-]*", rest[0]):
                return f"{' '.join(path)} has no command {rest[0]!r}; it has {', '.join(sorted(known))}"
            break
        path.append(rest.pop(0))
    text = help_of(*path) or ""
    for word in rest:
        if word in ("--", "|", ">", "&", "&&", ";"):
            break
        flag = re.match(r"--[\w.-]+", word)
        if flag and not re.search(rf"(?<![\w-]){re.escape(flag.group())}(?![\w.-])", text):
            return f"{' '.join(path)} has no flag {flag.group()}"
    return None


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_our_programs_know_the_commands(page: Page) -> None:
    starts = re.compile(rf"^(?:[A-Z_]+=\S* )*(?:{'|'.join(_PROGRAMS)})(?: |$)")
    found = {line: defect(line) for line in page.commands() if starts.match(line)}
    assert {line: wrong for line, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_make_targets_and_modules_are_there(page: Page) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    missing = []
    for line in page.commands():
        if (made := re.match(r"make ([a-z-]+)\b", line)) and made.group(1) not in targets:
            missing.append(line)
        module = re.search(r"(?:^|\s)python3? -m ((?:bench|tools)[\w.]*)", line)
        if module and importlib.util.find_spec(module.group(1)) is None:
            missing.append(line)
    assert missing == []


def test_wrong_commands_are_found() -> None:
    """The check itself: a flag and a command that nobody has."""
    assert defect("argus-exporter serve --colour") == "argus-exporter serve has no flag --colour"
    assert "has no command 'fly'" in (defect("argus-simulator fly") or "")
    assert defect("argus-exporter run -- torchrun --nproc-per-node 8 train.py") is None
