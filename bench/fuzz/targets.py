"""What is fuzzed, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bench.fuzz import importer_targets, wire_target


@dataclass(frozen=True)
class Target:
    """An entry point and inputs to begin with.

    It raises only where something is broken, and returns whether the input was read to its end.
    """

    run: Callable[[bytes], bool]
    seeds: Callable[[], list[bytes]]
    is_text: bool = False
    """Whether words of the format make better mutations than bytes."""


TARGETS: Final = {
    "wire": Target(wire_target.run, wire_target.seeds),
    "kineto": Target(importer_targets.kineto, importer_targets.kineto_seeds, is_text=True),
    "event_log": Target(importer_targets.event_log, importer_targets.event_log_seeds, is_text=True),
    "nsys": Target(importer_targets.nsys, importer_targets.nsys_seeds),
}
