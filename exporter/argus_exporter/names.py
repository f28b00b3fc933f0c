"""Interned names: texts of a rank, and what the ids of one connection mean.

Ids on the wire belong to a connection; a rank keeps ids of its own, so that kernel records of two connections
(phases and kernels come from different parts of a process) and of a reconnect meet.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_core import wire

_LIMIT: Final = 16_384
"""Distinct names a rank may intern. A real job has hundreds; a producer in a loop must not eat the memory."""
_UNBOUND: Final = 2**32 - 1
_DENSE_LIMIT: Final = 4 * _LIMIT
_OTHER_ID: Final = 1
OTHER: Final = "other"
"""What a name beyond the limit is called: a job that makes ever new names keeps the old ones."""


class Texts:
    """All texts of one rank, by a dense id; 0 is the empty text, 1 stands for all beyond the limit."""

    def __init__(self) -> None:
        self.by_id: dict[int, str] = {0: "", _OTHER_ID: OTHER}
        self._ids: dict[str, int] = {"": 0, OTHER: _OTHER_ID}

    def intern(self, text: str) -> int:
        known = self._ids.get(text)
        if known is None:
            if len(self._ids) >= _LIMIT:
                return _OTHER_ID
            known = self._ids[text] = len(self._ids)
            self.by_id[known] = text
        return known

    def limited(self, text: str) -> str:
        """The text as it is published: itself, or OTHER beyond the limit."""
        return self.by_id[self.intern(text)]


class NameTable:
    """Ids of one connection."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._bound: dict[int, int] = {0: 0}
        self._dense = np.full(256, _UNBOUND, np.uint32)
        """Internal ids by wire id, as far as those are small: kernel records come by the thousand."""
        self._dense[0] = 0
        self._overflown = False

    def bind(self, record: wire.Name) -> bool:
        """Learn what an id means. False when there are too many names and it means `other`."""
        if record.name_id not in self._bound and len(self._bound) > _LIMIT:
            self._overflown = True
            return False
        text = wire.decode_text(record.text)
        internal = self._bound[record.name_id] = self._texts.intern(text)
        if record.name_id < _DENSE_LIMIT:
            if record.name_id >= len(self._dense):
                room = np.full(max(record.name_id + 1, 2 * len(self._dense)), _UNBOUND, np.uint32)
                room[: len(self._dense)] = self._dense
                self._dense = room
            self._dense[record.name_id] = internal
        return internal != _OTHER_ID or text == OTHER

    def text(self, wire_id: int) -> str:
        return self._texts.by_id[self._internal(wire_id)]

    def internal_ids(self, wire_ids: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The rank's ids for an array of wire ids, same shape."""
        if len(wire_ids) and int(wire_ids.max()) < len(self._dense):
            internal: NDArray[np.uint32] = self._dense[wire_ids]
            if int(internal.max()) != _UNBOUND:
                return internal
        # Ids that no producer of ours gives, or one that was never bound.
        distinct, inverse = np.unique(wire_ids, return_inverse=True)
        return np.array([self._internal(int(wire_id)) for wire_id in distinct], np.uint32)[inverse]

    def _internal(self, wire_id: int) -> int:
        internal = self._bound.get(wire_id)
        if internal is None:
            if self._overflown:
                return _OTHER_ID
            raise wire.WireError("name_id", f"a record uses name id {wire_id}, which was never bound")
        return internal
