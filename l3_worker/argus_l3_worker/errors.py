"""What can go wrong in the worker. Every message says what is so, why it matters and what to do."""

from __future__ import annotations

from argus_core.errors import ArgusError, UserError


class ArgusWorkerError(ArgusError):
    """Root of all errors that the worker raises on purpose."""


class ConfigError(ArgusWorkerError, UserError):
    """The worker cannot do what it is asked with these settings."""


class QueryError(ArgusWorkerError):
    """Prometheus did not answer a query, or not with what was asked; the cycle is tried again."""


class PartialAnswer(QueryError):
    """The backend says itself that series are missing from its answer: nothing may be concluded from it."""


class DeliveryError(ArgusWorkerError):
    """The receiver did not take what was written back."""
