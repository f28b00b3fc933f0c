"""Whether tests play their long form: `make verify` sets ARGUS_LONG_FORMS, `make test` plays the short ones.

Both make the same assertions, the long form about more worlds, seeds or examples.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final, TypeVar

T = TypeVar("T")
LONG: Final = bool(os.environ.get("ARGUS_LONG_FORMS"))


def long_only(cases: Iterable[T]) -> list[T]:
    """Cases of a test that the short form leaves out."""
    return list(cases) if LONG else []
