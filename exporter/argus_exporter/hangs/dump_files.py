"""Dumps of torch's flight recorder in a store: which belong together, and as torch's own analyser wants them.

`torch.distributed.flight_recorder` (`torchfrtrace`) reads a folder of pickles, one a rank. In the store they
are JSON: nobody should load a pickle that a training process has made. Of gloo the analyser can say nothing:
gloo does not record who is in a group.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import zlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from argus_core.errors import UserError
from argus_core.store.keys import DumpKey

_ONE_HANG_NS: Final = 300 * 1_000_000_000
"""A rank makes no two dumps within that time (`argus_training.overdue`)."""
_MOST_BYTES: Final = 256 << 20
"""Of one dump, unpacked: half a million entries."""


def of_newest_hang(keys: Iterable[str]) -> list[DumpKey]:
    """Of each rank and recorder the newest dump, where it is of the newest hang among these keys."""
    newest: dict[tuple[str, int, str], DumpKey] = {}
    for text in keys:
        with suppress(ValueError):
            key = DumpKey.parse(text)
            of = key.training_job, key.rank, key.recorder
            if of not in newest or newest[of].made_ns < key.made_ns:
                newest[of] = key
    last = max((key.made_ns for key in newest.values()), default=0)
    return [newest[of] for of in sorted(newest) if last - newest[of].made_ns < _ONE_HANG_NS]


def as_pickle(name: str, content: bytes) -> bytes:
    """A dump of the store as the analyser wants it.

    Raises:
        UserError: it is no JSON.
    """
    try:
        said = json.loads(gzip.GzipFile(fileobj=io.BytesIO(content)).read(_MOST_BYTES))
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise UserError(f"{name} is no dump of a flight recorder: {error}") from error
    return pickle.dumps(said)
