"""Simulated timelines of several ranks with a known cause, as Perfetto files: what trace analysis is judged by."""
