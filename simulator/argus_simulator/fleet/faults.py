"""How a user says what is wrong with a fleet: `mechanism=kernels,ranks=77,factor=1.5,onset=30m`."""

from __future__ import annotations

import contextlib
import re
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from argus_core.option_types import WrongValue, duration
from argus_core.settings import SettingsError, from_mapping
from argus_simulator.engine.faults import KEYS, MEANING, Fault
from argus_simulator.errors import ArgusSimulatorError
from argus_simulator.topology import Topology

_SELECTOR: Final = re.compile(r"(dp|tp|pp|ep|host)[:=]?(\d+)|(\d+)(?:-(\d+))?")
_STEPS: Final = {"onset": "onset_step", "end": "end_step"}


class WrongFault(ArgusSimulatorError):
    """A fault that cannot be played; the message says which part and what is allowed."""


def parse_fault(text: str, topology: Topology, step_seconds: float, warm_steps: int = 0) -> Fault:
    """A fault from `key=value,key=value`: the lab's keys, with `onset` and `end` in time of the history.

    Args:
        step_seconds: of a healthy step, by which times become steps.
        warm_steps: steps before the history.

    Raises:
        WrongFault: with the fault's text, the key and what is allowed.
    """
    values: dict[str, Any] = {"onset_step": warm_steps}
    try:
        for part in text.split(","):
            key, separator, value = part.partition("=")
            if not separator:
                raise WrongFault(f"--fault {text}: {part!r} is not understood; allowed: key=value")
            if key == "ranks":
                values[key] = _members(value, topology)
            elif key in _STEPS:
                values[_STEPS[key]] = warm_steps + round(duration(value) / step_seconds)
            else:
                values[key] = _value(value)
        fault = from_mapping(Fault, values, f"--fault {text}")
        if fault.dp:  # the replicas that are played stand for the fleet's
            raise WrongFault(f"--fault {text}: dp is {fault.dp}; allowed: 0, a fleet restarts as it was")
        return fault
    except (WrongValue, ValueError) as error:
        raise WrongFault(f"--fault {text}: {error}") from error
    except SettingsError as error:
        raise WrongFault(str(error)) from error


def _value(text: str) -> object:
    if text in ("yes", "no"):
        return text == "yes"
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return number(text)
    return text


def _members(text: str, topology: Topology) -> list[int]:
    """Ranks, ascending, of numbers, ranges and places joined by +."""
    every = np.arange(topology.ranks)
    chosen: NDArray[np.bool_] = np.zeros(topology.ranks, bool)
    for part in text.split("+"):
        match = _SELECTOR.fullmatch(part)
        if match is None:
            raise ValueError(
                f"ranks is {text!r}; allowed: numbers, ranges and places joined by +,"
                " such as 77, 8-15, pp3, dp17, host2"
            )
        dimension, index, first, last = match.groups()
        if dimension is None:
            hit = (every >= int(first)) & (every <= int(last or first))
        elif dimension == "host":
            hit = every // topology.ranks_per_host == int(index)
        else:
            hit = np.array(
                [topology.coordinates(rank).get(dimension, -1) == int(index) for rank in every.tolist()]
            )
        if not hit.any():
            raise ValueError(
                f"ranks={part}: no such ranks among {topology.ranks} (dp {topology.dp}, tp"
                f" {topology.tp}, pp {topology.pp}, ep {topology.ep}); count from 0"
            )
        chosen |= hit
    return np.flatnonzero(chosen).tolist()


def described() -> str:
    """Mechanisms, what they do and their keys, for `--help`."""
    return "\n".join(
        f"  {name:13} {text}\n{'':16}{', '.join(sorted(KEYS[name]))}" for name, text in MEANING.items()
    )
