"""What goes wrong with the stack."""

from __future__ import annotations

from argus_simulator.errors import ArgusSimulatorError


class StackError(ArgusSimulatorError):
    """A part of the stack is missing, does not start, or died."""


class PortTaken(StackError):
    """Somebody else listens on the port that was chosen."""


class WaitTimeout(StackError):
    """A condition did not come true in time."""
