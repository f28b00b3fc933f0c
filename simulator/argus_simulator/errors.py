"""The root of what the simulator raises for its user."""

from __future__ import annotations

from argus_core.errors import UserError


class ArgusSimulatorError(UserError):
    """Something the user can act on; the message says what is so, why it matters and what to do."""
