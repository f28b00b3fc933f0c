"""Waiting for conditions, never for time to pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from argus_simulator.stack.errors import WaitTimeout

T = TypeVar("T")


def wait_for(
    condition: Callable[[], T],
    timeout_s: float,
    what: str,
    *,
    every_s: float = 0.1,
    meanwhile: Callable[[], None] = lambda: None,
) -> T:
    """The condition's first truthy value.

    Args:
        condition: asked at once and then every `every_s`.
        timeout_s: how long it may stay falsy.
        what: completes "waited N s for ..." in the error.
        every_s: pause between two questions.
        meanwhile: called before each pause; raises where waiting on makes no sense.

    Raises:
        WaitTimeout: it stayed falsy; the message ends in its last value.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        meanwhile()
        if time.monotonic() >= deadline:
            raise WaitTimeout(f"waited {timeout_s:g} s for {what} in vain (last seen: {value!r})")
        time.sleep(every_s)
