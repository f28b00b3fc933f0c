"""Why nothing is known from RAS."""

from __future__ import annotations

from argus_core.errors import ArgusError
from argus_exporter.errors import ArgusExporterError


class RasFailed(ArgusError):
    """RAS was asked in vain: nobody listens, no answer in time, an answer that is none, another job's."""


class RasRefused(ArgusExporterError):
    """RAS is not asked: it could harm the job, it is off, or it is out of reach from here."""
