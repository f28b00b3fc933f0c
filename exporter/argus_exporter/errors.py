"""The root of what the exporter's commands report in one line."""

from __future__ import annotations

from argus_core.errors import UserError


class ArgusExporterError(UserError):
    """What the exporter cannot do as it is asked; the message says what is so and what to do."""
