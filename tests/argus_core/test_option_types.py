"""Values of options: read, or refused with what is allowed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from argus_core.option_types import WrongValue, duration, moment, number, whole_number


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (duration, "90", 90.0),
        (duration, "500ms", 0.5),
        (duration, "1.5m", 90.0),
        (duration, "2h", 7200.0),
        (duration, "1d", 86400.0),
        (moment, "1700000000.5", 1_700_000_000.5),
        (whole_number(), "0", 0),
        (whole_number(1, 8), "8", 8),
        (number(zero=True), "0", 0.0),
        (number(zero=False), "1e-3", 0.001),
    ],
)
def test_values_are_read(read: Callable[[str], float], text: str, value: float) -> None:
    assert read(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("read", "text", "allowed"),
    [
        (duration, "soon", "a number with ms, s, m, h or d"),
        (duration, "-1s", "a number with ms, s, m, h or d"),
        (moment, "nan", "Unix time in seconds"),
        (moment, "-1", "Unix time in seconds"),
        (moment, "1e300", "Unix time in seconds"),
        (moment, "now", "Unix time in seconds"),
        (whole_number(1, 8), "9", "a whole number from 1 to 8"),
        (whole_number(), "-1", "a whole number from 0"),
        (whole_number(), "²", "a whole number from 0"),
        (number(zero=True), "nan", "a number of 0 or more"),
        (number(zero=False), "0", "a number above 0"),
        (number(zero=False), "inf", "a number above 0"),
    ],
)
def test_others_are_refused_with_what_is_allowed(
    read: Callable[[str], float], text: str, allowed: str
) -> None:
    with pytest.raises(WrongValue, match=f"{text}.*; allowed: {allowed}"):
        read(text)
