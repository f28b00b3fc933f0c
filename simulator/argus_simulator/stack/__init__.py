"""The real stack, started for a demo or a test: see `Stack`."""

from argus_simulator.stack.assembly import Stack
from argus_simulator.stack.errors import PortTaken, StackError, WaitTimeout
from argus_simulator.stack.parts import Exporter, StackOptions
from argus_simulator.stack.prometheus import Alert, Samples
from argus_simulator.stack.waiting import wait_for
from argus_simulator.stack.webhook import Notification

__all__ = [
    "Alert",
    "Exporter",
    "Notification",
    "PortTaken",
    "Samples",
    "Stack",
    "StackError",
    "StackOptions",
    "WaitTimeout",
    "wait_for",
]
