"""Structured log lines on stderr: `ts=... level=info event="cycle done" key=value`."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

LOGGER = logging.getLogger("argus_l3_worker")


def fields(event: str, **values: object) -> str:
    """`event="..." key=value ...`; values with spaces or quotes are quoted."""
    return " ".join(
        [f"event={_quoted(event)}", *(f"{key}={_quoted(value)}" for key, value in values.items())]
    )


def _quoted(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    plain = bool(text) and not any(c in text for c in ' "=\n\t')
    return text if plain else json.dumps(text, ensure_ascii=False)


class _KeyValueFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        stamp = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = f"ts={stamp} level={record.levelname.lower()} {record.getMessage()}"
        return f"{line} error={_quoted(self.formatException(record.exc_info))}" if record.exc_info else line


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to what is sys.stderr then, which a caller of main() may have replaced since."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def configure(level: str) -> None:
    """Send the worker's log to stderr at `level`."""
    handler = _StderrHandler()
    handler.setFormatter(_KeyValueFormatter())
    LOGGER.handlers[:] = [handler]
    LOGGER.setLevel(level.upper())
    LOGGER.propagate = False
