"""Simulated timelines of several ranks with a known cause, as Perfetto files: they judge trace analysis."""
