"""What can be wrong with a trace."""

from __future__ import annotations

from argus_core.errors import ArgusError, UserError


class TraceError(ArgusError):
    """A trace cannot be found, fetched or analysed; the message names it."""


class NotInTraces(TraceError, UserError):
    """What is asked for is in none of the traces that are given."""


class TraceDamaged(TraceError):
    """A file that is no whole trace: cut off, or with bytes that are not Perfetto's."""
