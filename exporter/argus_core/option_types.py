"""What the value of an option may be: each function reads a text, or says what is allowed."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from typing import Final

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_YEAR_10000: Final = 253_402_300_800.0
_UNITS: Final = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, None: 1.0}


class WrongValue(argparse.ArgumentTypeError, ValueError):
    """argparse prints the message, other callers wrap it."""


def duration(text: str) -> float:
    """Seconds of `90`, `500ms`, `1.5m` or `2h`.

    Raises:
        WrongValue: something else.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise WrongValue(f"{text!r} is no duration; allowed: a number with ms, s, m, h or d, such as 90s")
    return float(match[1]) * _UNITS[match[2]]


def moment(text: str) -> float:
    """Unix time in seconds, up to the year 9999.

    Raises:
        WrongValue: something else.
    """
    try:
        at = float(text)
    except ValueError:
        at = math.nan
    if not 0.0 <= at < _YEAR_10000:
        raise WrongValue(f"{text!r} is no time; allowed: Unix time in seconds, such as 1700000000")
    return at


def whole_number(least: int = 0, most: int = 2**63 - 1) -> Callable[[str], int]:
    """A type for numbers from `least` to `most`."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) < 20 and least <= int(text) <= most):
            raise WrongValue(f"{text!r}; allowed: a whole number from {least} to {most}")
        return int(text)

    return read


def number(*, zero: bool) -> Callable[[str], float]:
    """A type for finite numbers above 0, and 0 itself where it means something."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not (0 < value < float("inf") or (zero and value == 0)):
            raise WrongValue(f"{text!r}; allowed: a number {'of 0 or more' if zero else 'above 0'}")
        return value

    return read
