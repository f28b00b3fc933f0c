"""Several samples of a series in one request, as the stage of the dashboards writes its history."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from bench.bulk_write import BulkWrite
from bench.rule_history import samples_around
from bench.servers import PrometheusServer

from argus_core import remote_write
from argus_core.remote_write import Labels

BEGAN, NEXT = 1_700_000_000.0, 1_700_000_030.0
FORWARD = remote_write.labels_of("argus_up", rank="0", phase="forward")
BACKWARD = remote_write.labels_of("argus_up", rank="0", phase="backward")


class Recorder(PrometheusServer):
    """A server that keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__(Path())
        self.got: list[bytes] = []

    def write(self, series: Sequence[bytes]) -> None:
        self.got += series


def encoded(labels: Labels, *samples: tuple[float, float]) -> bytes:
    """A series as remote write wants it, sample by sample: (Unix time, value)."""
    empty = len(remote_write.encode_series((), 0.0, 0))
    parts = [remote_write.encode_series((), value, round(1000 * at)) for at, value in samples]
    return remote_write.encode_series(labels, 0.0, 0)[:-empty] + b"".join(parts)


def test_each_series_is_sent_once_with_all_its_samples() -> None:
    """The bytes are those of the encoder that writes single samples."""
    server = Recorder()
    count = BulkWrite(server, [FORWARD, BACKWARD]).write([BEGAN, NEXT], np.array([[1.0, 2.0], [3.0, 4.0]]))

    assert count == 2
    assert server.got == [
        encoded(FORWARD, (BEGAN, 1.0), (NEXT, 2.0)),
        encoded(BACKWARD, (BEGAN, 3.0), (NEXT, 4.0)),
    ]


def test_a_series_that_is_gone_ends_once() -> None:
    """By a stale marker, as after a scrape that does not find it; one that never was is not sent."""
    server, never = Recorder(), float("nan")
    bulk = BulkWrite(server, [FORWARD, BACKWARD])
    bulk.write([BEGAN], np.array([[1.0], [never]]))
    bulk.write([NEXT], np.array([[never], [never]]))
    bulk.write([NEXT + 30], np.array([[never], [never]]))

    assert server.got == [
        encoded(FORWARD, (BEGAN, 1.0)),
        remote_write.encode_stale_marker(FORWARD, round(1000 * NEXT)),
    ]


def test_a_value_is_repeated_between_its_times() -> None:
    """One join makes the samples of a series that does not change."""
    joined = struct.pack("<d", 5.0).join(samples_around([BEGAN, NEXT]))
    assert joined == encoded((), (BEGAN, 5.0), (NEXT, 5.0))
