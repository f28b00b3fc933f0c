"""Durations on the command line: 500ms, 2s, 1m, 1h."""

from __future__ import annotations

import argparse
import re

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, None: 1.0}


def duration(text: str) -> float:
    """Seconds.

    Raises:
        argparse.ArgumentTypeError: not a duration.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: write 500ms, 2s, 1m, 1h or 1d")
    return float(match[1]) * _UNITS[match[2]]
