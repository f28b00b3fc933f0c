"""What can be wrong with a trace."""

from __future__ import annotations


class TraceError(Exception):
    """A trace cannot be found, fetched or analysed; the message names it."""


class TraceDamaged(TraceError):
    """A file that is no whole trace: cut off, or with bytes that are not Perfetto's."""
