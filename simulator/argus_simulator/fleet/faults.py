"""What may be wrong with a fleet, and how a user says it: `ranks=77,phase=forward,factor=1.6,onset=30m`."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Final, get_type_hints

import numpy as np
from numpy.typing import NDArray

from argus_core.option_types import duration
from argus_simulator.errors import ArgusSimulatorError
from argus_simulator.fleet import program
from argus_simulator.fleet.bank import kernel_names
from argus_simulator.fleet.ranks import Layout

PHASES: Final = tuple(phase.name for phase in program.ALL)
CHANNELS: Final = ("phases", "kernels", "stacks")

EFFECTS: Final = {
    "phase": "the phase takes `factor` times as long; a collective: its transfer does, for the whole group",
    "kernels": "kernels whose full name matches this glob take `factor` times as long",
    "late": "seconds of idle time each step before the gradient all-reduce that no phase covers",
    "gc": "seconds that a full garbage collection stops the rank, about every tenth step",
    "blind": "the channel is down: phases, kernels or stacks",
    "silent": "yes: the exporter says nothing more of these ranks; training goes on",
    "hang": "yes: the ranks never leave forward; the others wait for them",
}
_SELECTOR: Final = re.compile(r"(dp|tp|pp|ep|host)[:=]?(\d+)|(\d+)(?:-(\d+))?")


class WrongFault(ArgusSimulatorError):
    """A fault that cannot be played; the message says which part and what is allowed."""


@dataclass(frozen=True)
class FleetFault:
    """One fault. `ranks`: numbers, ranges (8-15) and places (pp3, dp17, host2), joined by `+`."""

    ranks: str = ""
    phase: str = ""
    kernels: str = ""
    late: float = 0.0
    gc: float = 0.0
    blind: str = ""
    silent: bool = False
    hang: bool = False
    factor: float = 1.5
    onset: float = 0.0
    """Seconds after the first sample."""
    end: float = math.inf

    def __post_init__(self) -> None:
        for part in self.ranks.split("+"):
            if not _SELECTOR.fullmatch(part):
                raise ValueError(
                    f"ranks is {self.ranks!r}; allowed: numbers, ranges and places joined by +,"
                    " such as 77, 8-15, pp3, dp17, host2"
                )
        given = [name for name in EFFECTS if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(
                f"{' and '.join(given) or 'no effect'} given; allowed: exactly one of {', '.join(EFFECTS)}"
            )
        if self.phase and self.phase not in PHASES:
            raise ValueError(f"phase is {self.phase!r}; allowed: {', '.join(PHASES)}")
        if self.kernels and not any(fnmatchcase(name, self.kernels) for name in kernel_names()):
            raise ValueError(f"kernels is {self.kernels!r}, which matches no simulated kernel")
        if self.blind and self.blind not in CHANNELS:
            raise ValueError(f"blind is {self.blind!r}; allowed: {', '.join(CHANNELS)}")
        for name, value, least, most in (
            ("factor", self.factor, 0.1, 1000.0),
            ("late", self.late, 0.0, 600.0),
            ("gc", self.gc, 0.0, 600.0),
        ):
            if not least <= value <= most:
                raise ValueError(f"{name} is {value:g}; allowed: {least:g} to {most:g}")
        if self.onset < 0 or self.end <= self.onset:
            raise ValueError(f"onset is {self.onset:g} s and end {self.end:g} s; allowed: 0 <= onset < end")

    def active(self, seconds: float) -> bool:
        return self.onset <= seconds < self.end

    def members(self, layout: Layout) -> NDArray[np.bool_]:
        """The ranks that have it, shape (ranks,).

        Raises:
            WrongFault: a place that the layout does not have.
        """
        chosen = np.zeros(layout.ranks, bool)
        for part in self.ranks.split("+"):
            match = _SELECTOR.fullmatch(part)
            assert match is not None
            dimension, index, first, last = match.groups()
            if dimension is not None:
                where = layout.host if dimension == "host" else layout.coordinates.get(dimension)
                hit = np.zeros(layout.ranks, bool) if where is None else where == int(index)
            else:
                numbers = np.arange(layout.ranks)
                hit = (numbers >= int(first)) & (numbers <= int(last or first))
            if not hit.any():
                raise WrongFault(
                    f"ranks={part}: no such ranks among {layout.ranks} (dp {layout.dp}, tp {layout.tp},"
                    f" pp {layout.pp}, ep {layout.ep}, {layout.hosts} hosts); count from 0"
                )
            chosen |= hit
        return chosen


def parse_fault(text: str) -> FleetFault:
    """A fault from `key=value,key=value`.

    Raises:
        WrongFault: with the fault's text, the key and what is allowed.
    """
    hints = get_type_hints(FleetFault)
    allowed = ", ".join(hints)
    values: dict[str, object] = {}
    for part in text.split(","):
        key, separator, value = part.partition("=")
        if not separator or key not in hints:
            raise WrongFault(f"--fault {text}: {part!r} is not understood; allowed: key=value with {allowed}")
        try:
            values[key] = _converted(key, value, hints[key])
        except ValueError as error:
            raise WrongFault(f"--fault {text}: {key}: {error}") from error
    try:
        return FleetFault(**values)  # type: ignore[arg-type]
    except ValueError as error:
        raise WrongFault(f"--fault {text}: {error}") from error


def _converted(key: str, value: str, kind: type) -> object:
    if key in ("onset", "end", "late", "gc"):
        return duration(value)
    if kind is bool:
        if value not in ("yes", "no"):
            raise ValueError(f"{value!r}; allowed: yes, no")
        return value == "yes"
    if kind is float:
        try:
            return float(value)
        except ValueError:
            raise ValueError(f"{value!r} is not a number") from None
    return value


@dataclass(frozen=True)
class Faults:
    """The faults of one fleet, with their ranks found."""

    layout: Layout
    every: tuple[FleetFault, ...] = ()

    @cached_property
    def _members(self) -> list[NDArray[np.bool_]]:
        return [fault.members(self.layout) for fault in self.every]

    def check(self) -> None:
        """Raises WrongFault where a fault names no rank of the layout."""
        assert len(self._members) == len(self.every)

    def active(self, effect: str, seconds: float) -> Iterable[tuple[FleetFault, NDArray[np.bool_]]]:
        """Faults with this effect that are active then, each with its ranks."""
        for fault, members in zip(self.every, self._members, strict=True):
            if getattr(fault, effect) and fault.active(seconds):
                yield fault, members

    def ranks_with(self, effect: str, seconds: float, value: str = "") -> NDArray[np.bool_]:
        """Ranks on which the effect is active (with this value, if one is given), shape (ranks,)."""
        hit = np.zeros(self.layout.ranks, bool)
        for fault, members in self.active(effect, seconds):
            if not value or getattr(fault, effect) == value:
                hit |= members
        return hit


def described() -> str:
    """Effects and what they do, for `--help`."""
    lines = [f"  {name:8} {text}" for name, text in EFFECTS.items()]
    keys = ", ".join(field.name for field in dataclasses.fields(FleetFault) if field.name not in EFFECTS)
    return "\n".join([*lines, f"  further keys: {keys} (seconds after the first sample, or 90s, 30m, 2h)"])
