"""What the hooks of a step share while it runs.

One object with slots for all of it: after a step's work every object that is touched is a cache miss or two.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

THE_BACKWARD: Final = object()
"""Steps in place of all optimizers that step within a backward."""


class StepProgress:
    """Where training is within its step, and whether all goes as it usually does."""

    __slots__ = (
        "communicating",
        "counts_work",
        "ended_ns",
        "forwarded",
        "forwarding",
        "forwards",
        "look_at",
        "opened_ns",
        "steady",
        "step_began_ns",
        "stepping",
        "usual_forwards",
        "usual_optimizer",
    )

    def __init__(self) -> None:
        self.steady = False
        """The usual: the sequence of an iteration is known, work is timed on the host's clock, the sender
        keeps up, nothing evaluates, no hook has failed. Then hooks take a short way, else the general one.
        Whatever ends this sets it False; `Observer.settle` alone sets it True."""
        self.forwarding = False
        """A forward pass is being timed: modules and functions within it are part of it."""
        self.forwarded = False
        """The forward that is being timed is a function of a framework's: the model is called within."""
        self.communicating: defaultdict[int, int] = defaultdict(int)
        """Spans of communication that frameworks have opened, by thread: its collectives and waits are part
        of them."""
        self.forwards = 0
        """Training forwards since `ended_ns`."""
        self.opened_ns = 0
        """When the running iteration began; 0: it has not, after a pause or before the first."""
        self.ended_ns = 0
        """When the latest optimizer step ended; where none steps, the latest backward."""
        self.counts_work = True
        """The user tells no work: it is counted from the shapes of the model's inputs."""
        self.stepping = 0
        """Id of the optimizer that steps; a reference would keep it alive where its step raised."""
        self.step_began_ns = 0
        """When its step began, if that is a usual one."""
        self.look_at = 0
        """The observer looks around after the first step that ends then or later."""
        self.usual_forwards = -1
        """The known sequence where it is one optimizer step long, as nearly always: forwards before it, and
        the id of the optimizer. -1 and 0: there is none."""
        self.usual_optimizer = 0
