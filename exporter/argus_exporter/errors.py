"""The root of what the exporter's commands report in one line."""

from __future__ import annotations


class ArgusExporterError(Exception):
    """A user-visible failure: the message says what is so and what to do. Exit status 2."""
