"""What NVTX ranges of training scripts mean: steps, and the phases inside them.

There is no standard of names. These are the ones that Megatron, DeepSpeed, Lightning, FSDP, NeMo and the
PyTorch documentation put into scripts; others stay unread (docs/import.md).
"""

from __future__ import annotations

import re
from typing import Final

from argus_core import wire
from argus_exporter.replay.assemble import Interval, Phase
from argus_exporter.replay.recording import STEP_LIMIT

_NUMBERED_STEP: Final = re.compile(
    r"(?:profiler|train(?:ing)?|global)?[ _-]?(?:step|iter(?:ation)?|batch)[ _:#=-]*([0-9]{1,10})",
    re.IGNORECASE,
)
_PLAIN_STEP: Final = re.compile(
    r"(?:train(?:ing)?|global|run_training)?[ _-]?(?:step|iter(?:ation)?|batch)", re.IGNORECASE
)

PHASES: Final = tuple(
    Phase(name, kind, (name,))
    for name, kind in (
        ("data", wire.Kind.HOST),
        ("forward", wire.Kind.COMPUTE),
        ("backward", wire.Kind.COMPUTE),
        ("optimizer", wire.Kind.COMPUTE),
    )
)
_PHASE_NAMES: Final = {
    "data": (
        r"data|dataload(?:er|ing)?|data[ _-]load(?:ing|er)?|load[ _-](?:batch|data)|batch[ _-]generator"
        r"|(?:get|next)[ _-]batch|copy[ _-]to[ _-]device"
    ),
    "forward": r"(?:.*engine\.|.*parallel\.)?(?:forward|fwd)(?:[ _-](?:pass|compute|step))?",
    "backward": r"(?:.*engine\.|.*parallel\.)?(?:backward|bwd)(?:[ _-](?:pass|compute|step))?",
    "optimizer": r"optimi[sz]er(?:[ _.-](?:step|update))?|opt[ _.-]step|optimizer\.step#.*|.*engine\.step",
}
_PHASE: Final = re.compile(
    "|".join(f"(?P<{name}>{pattern})" for name, pattern in _PHASE_NAMES.items()), re.IGNORECASE
)
_LONGEST: Final = 128
"""Names of operators (`emit_nvtx`) with all their shapes are longer, and mean neither."""


class Ranges:
    """Sorts the ranges of one process into numbered steps, unnumbered steps and phases."""

    def __init__(self) -> None:
        self._numbered: list[tuple[int, Interval]] = []
        self._plain: list[Interval] = []
        self._phases: dict[str, list[Interval]] = {}

    def add(self, name: str, start_ns: int, duration_ns: int) -> None:
        if len(name) > _LONGEST:
            return
        step = _NUMBERED_STEP.fullmatch(name)
        if step:
            if int(step[1]) < STEP_LIMIT:
                self._numbered.append((int(step[1]), Interval(name, start_ns, duration_ns)))
        elif _PLAIN_STEP.fullmatch(name):
            self._plain.append(Interval(name, start_ns, duration_ns))
        elif phase := _PHASE.fullmatch(name):
            mark = phase.lastgroup or ""
            self._phases.setdefault(mark, []).append(Interval(mark, start_ns, duration_ns))

    @property
    def steps(self) -> list[tuple[int, Interval]]:
        """Numbered steps where there are any; else plain ones, numbered 0, 1, ... as they begin."""
        return self._numbered or list(enumerate(_outermost(self._plain)))

    @property
    def marks(self) -> list[Interval]:
        return [mark for marks in self._phases.values() for mark in _outermost(marks)]


def _outermost(intervals: list[Interval]) -> list[Interval]:
    """Without those that begin inside another: the forward of a wrapped layer is part of the model's."""
    kept: list[Interval] = []
    for interval in sorted(intervals, key=lambda one: (one.start_ns, -one.duration_ns)):
        if not kept or interval.start_ns >= kept[-1].start_ns + kept[-1].duration_ns:
            kept.append(interval)
    return kept
