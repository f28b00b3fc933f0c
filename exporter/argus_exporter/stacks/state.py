"""What the exporter knows of one rank's stacks: who samples, how well that goes, and what it has found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from argus_core import wire
from argus_core.stack_refusals import BY_CHOICE
from argus_exporter.names import NameTable
from argus_exporter.stacks.totals import StackTotals
from argus_exporter.stacks.tree import StackTree

INSIDE_SUFFIX: Final = "_inprocess"
"""Ends the reason of a refused py-spy where the sampler inside the process stands in for it."""


@dataclass
class Outside:
    """How sampling from outside goes. `reason` is empty while it works, else one of a few words."""

    reason: str = ""
    hertz: float = 0.0
    """Samples a second asked of py-spy, pauses counted in."""


@dataclass
class StackState:
    """Stacks of one rank. One thread (the event loop) calls it."""

    totals: StackTotals = field(default_factory=lambda: StackTotals(10))
    tree: StackTree = field(default_factory=StackTree)
    outside: Outside | None = None
    """None while nobody samples from outside."""
    outside_cpu_seconds: float = 0.0
    """CPU time of py-spy and of reading what it wrote, outside the training process."""
    inside: bool = False
    """Whether the sampler inside the process says that it samples."""

    by_choice: bool = False
    """Whether it does so because its user wants that, and not because py-spy was refused."""

    def sampled_inside(self, up: bool, reason: str) -> None:
        """What the sampler inside the process says of itself."""
        self.inside, self.by_choice = up, up and reason == BY_CHOICE

    def node(self, record: wire.StackNode, names: NameTable) -> None:
        """One STACK_NODES record; raises WireError as `StackTree.node`."""
        self.tree.node(record, names)

    def sample(self, record: wire.StackSample, names: NameTable) -> bool:
        """One STACK_SAMPLES record; False when it was not kept. Raises WireError as `StackTree.sample`."""
        return self.tree.sample(record, names)

    @property
    def reason(self) -> str | None:
        """Why the channel is down; empty while it observes; None where the sampler inside decides.

        A sampler inside the process does not make good for a refused py-spy: it is blind while the GIL is
        held, so the channel stays down, and the reason tells that something is left.
        """
        if self.outside is None or (self.inside and self.by_choice):
            return None
        if not self.outside.reason:
            return ""
        return self.outside.reason + (INSIDE_SUFFIX if self.inside else "")
