"""History of many series into a Prometheus: several samples of each in one remote write request.

Prometheus finds a series by its labels once a request, which costs more than storing a sample.
argus_simulator.fleet.remote sends one sample at a time, since it goes on live.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
from numpy.typing import NDArray

from argus_core import remote_write
from argus_core.remote_write import Labels
from argus_simulator.fast_play.storage import Floats
from bench.servers import PrometheusServer

_SAMPLES_A_REQUEST: Final = 60_000
_SENDERS: Final = 2
_MARK: Final = b"\xff" * 8


class BulkWrite:
    """Many series of one server, known from the start.

    Args:
        labels: of each series.
    """

    def __init__(self, server: PrometheusServer, labels: Iterable[Labels]) -> None:
        self._server = server
        known: dict[tuple[str, str], bytes] = {}  # a million series share a few thousand labels
        empty = len(remote_write.encode_series((), 0.0, 0))
        self._labels: list[bytes] = []
        for series in labels:
            for pair in series:
                if pair not in known:
                    known[pair] = remote_write.encode_series((pair,), 0.0, 0)[:-empty]
            self._labels.append(b"".join([known[pair] for pair in series]))
        self._alive: NDArray[np.bool_] = np.zeros(len(self._labels), bool)

    def write(self, times: Sequence[float], values: Floats) -> int:
        """Samples of every series at Unix times, ascending, after those before; how many series there were.

        Args:
            values: shape (series, times); NaN where a series does not exist then, which ends it.
        """
        present = ~np.isnan(values)
        sent = np.flatnonzero(present.any(axis=1) | self._alive)
        self._alive = present[:, -1]
        bits = values.astype("<f8").view("<u8")
        bits[~present] = remote_write.STALE_BITS
        samples = _samples(times)
        size = max(1, _SAMPLES_A_REQUEST // len(times))
        with ThreadPoolExecutor(_SENDERS) as senders:
            waiting = []
            for begin in range(0, len(sent), size):
                part = sent[begin : begin + size]
                waiting.append(senders.submit(self._server.write, self._encoded(part, bits, samples)))
                if len(waiting) > _SENDERS:
                    waiting.pop(0).result()
            for one in waiting:
                one.result()
        return int(present[:, -1].sum())

    def _encoded(
        self, part: NDArray[np.int64], bits: NDArray[np.uint64], samples: NDArray[np.uint8]
    ) -> list[bytes]:
        block = np.broadcast_to(samples, (len(part), *samples.shape)).copy()
        chosen, place = bits[part], _value_place()
        block[:, :, place : place + 8] = chosen.view(np.uint8).reshape(*chosen.shape, 8)
        body, length = block.tobytes(), samples.size
        return [
            self._labels[series] + body[number * length : (number + 1) * length]
            for number, series in enumerate(part.tolist())
        ]


def _samples(times: Sequence[float]) -> NDArray[np.uint8]:
    """Bytes of one encoded sample at each time, shape (times, bytes), with room for the value."""
    encoded = [remote_write.encode_series_bits((), _MARK, round(at * 1000)) for at in times]
    return np.array([np.frombuffer(one, np.uint8) for one in encoded])


def _value_place() -> int:
    return remote_write.encode_series_bits((), _MARK, 1).index(_MARK)
