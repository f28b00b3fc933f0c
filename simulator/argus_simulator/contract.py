"""What the simulated producers may send, and where that is known from: contract.yaml."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Final, NamedTuple

import yaml

_LIKE: Final = "like"
LEVELS: Final = ("hooks", "kernels", "nccl")
"""Of signals; each adds to those before it."""


@dataclass(frozen=True)
class Entry:
    """One thing that is sent.

    Attributes:
        source: one of `sources()`.
        programs: recorded: of docs/frameworks.json, or the GPU.
        origin: where it is stated or was seen, where it was not recorded.
        clock: of a phase: `host`, `stream`, or `own` where it is a stream of its own.
        cadence: of a phase: how often a microbatch, a layer, ... of an iteration has it.
    """

    source: str
    programs: tuple[str, ...]
    origin: str
    clock: str = ""
    cadence: Mapping[str, int] = field(default_factory=dict)


class Sent(NamedTuple):
    """A phase as the contract knows it; `waits` are dimensions, or one word."""

    phase: str
    kind: str
    group: str
    waits: tuple[str, ...]


def sources() -> tuple[str, ...]:
    """Of entries, from the strongest on."""
    return tuple(_content()["sources"])


def phases(framework: str) -> dict[Sent, Entry]:
    """What hooks send of a framework's job.

    Raises:
        KeyError: the contract does not know the framework.
    """
    found: dict[Sent, Entry] = {}
    for one in _content()["frameworks"][framework]:
        if _LIKE in one:
            found |= phases(one[_LIKE])
        else:
            sent = Sent(one["phase"], one["kind"], one.get("group", ""), tuple(one["waits"].split()))
            cadence = _cadence(one["every"])
            found[sent] = dataclasses.replace(_entry(one), clock=one["time"], cadence=cadence)
    return found


def frameworks() -> tuple[str, ...]:
    return tuple(_content()["frameworks"])


def kernels() -> dict[str, Entry]:
    """By what the full name begins with."""
    return {one["name"]: _entry(one) for one in _content()["kernels"]}


def nccl() -> dict[str, Entry]:
    """Fields of the memory of NCCL's plugin."""
    return {one["name"]: _entry(one) for one in _content()["nccl"]}


def frames() -> dict[str, Entry]:
    """Innermost frames of a healthy job's main thread, without their lines."""
    return {one["frame"]: _entry(one) for one in _content()["frames"]}


def weakest_source(signals: str) -> str:
    """Of all entries that a level plays: `hooks` the phases, `kernels` the kernels too, `nccl` all.

    Frames are left out: stacks explain, and what accuses is told by phases and kernels.
    """
    entries = [entry for framework in frameworks() for entry in phases(framework).values()]
    more = (kernels, nccl)[: LEVELS.index(signals)]
    return weakest([*entries, *(entry for of in more for entry in of().values())])


def weakest(entries: Iterable[Entry]) -> str:
    return max((entry.source for entry in entries), key=sources().index)


def _entry(one: dict[str, Any]) -> Entry:
    named = one.get("program", ())
    return Entry(one["source"], (named,) if isinstance(named, str) else tuple(named), one.get("from", ""))


def _cadence(every: str) -> dict[str, int]:
    """`step + 2 layer` by unit."""
    terms = [term.rpartition(" ") for term in every.split(" + ")]
    return {unit: int(number or 1) for number, _, unit in terms}


@functools.cache
def _content() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(
        (resources.files("argus_simulator") / "contract.yaml").read_text()
    )
    return content
