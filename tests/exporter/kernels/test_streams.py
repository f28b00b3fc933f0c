"""Streams are named by what they do, alike on every rank and for as long as they live."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from argus_exporter.kernels.communicators import find_dimensions
from argus_exporter.kernels.pairs import find_pairs, stream_key
from argus_exporter.kernels.streams import StreamLabels, label_streams
from argus_exporter.place.topology import Identity
from argus_exporter.replay.reader import read_files
from exporter.kernel_rows import NAMES, kernels


def test_streams_are_named_by_what_they_mostly_do():
    """Raw stream ids are not comparable across ranks."""
    records = kernels(
        (5000, 90, 1, 7), (5100, 90, 2, 20), (5200, 90, 3, 13), (5300, 90, 1, 9), (5400, 10, 3, 7)
    )
    assert label_streams(records, NAMES) == {7: "compute0", 9: "compute1", 13: "copy0", 20: "nccl0"}


def test_a_label_stays_with_its_stream_when_others_come():
    """A stream with a lower id that appears later does not take the number."""
    labels = StreamLabels()
    labels.update(find_pairs(kernels((0, 10, 1, 9))), NAMES)
    assert labels.update(find_pairs(kernels((0, 10, 1, 7), (0, 10, 1, 9))), NAMES) == {
        9: "compute0",
        7: "compute1",
    }


def test_the_stream_of_a_known_communicator_is_named_after_its_dimension():
    """A second one of the same dimension is told apart; one that is not known is numbered."""
    records = kernels((0, 10, 2, 20), (0, 10, 2, 21), (0, 10, 4, 22))
    dimension = {20: "dp", 21: "dp"}.get
    assert StreamLabels().update(find_pairs(records), NAMES, dimension) == {
        20: "nccl:dp",
        21: "nccl:dp.1",
        22: "nccl0",
    }


def test_a_dimension_that_becomes_known_later_renames_the_stream_once():
    """Evidence may take a window; afterwards the name stays, evidence or not."""
    labels, records = StreamLabels(), kernels((0, 10, 2, 20))
    seen = [labels.update(find_pairs(records), NAMES, {20: d}.get)[20] for d in (None, "tp", None, "dp")]
    assert seen == ["nccl0", "nccl:tp", "nccl:tp", "nccl:tp"]


def test_two_devices_of_one_process_keep_their_streams_apart():
    """Both have a stream 7; the rank's own device carries no suffix, whatever its number."""
    labels = StreamLabels()
    own = kernels((0, 1000, 1, 7), device=3)
    stray = kernels((0, 10, 1, 7), device=0)
    found = labels.update(find_pairs(np.concatenate([own, stray])), NAMES)
    assert found == {stream_key(3, 7): "compute0", stream_key(0, 7): "compute0:gpu0"}
    assert labels.main_device == 3


def test_of_equally_busy_devices_the_lowest_is_the_ranks_own():
    """One process that drives four GPUs names them alike on every host."""

    busy = [kernels((0, 1000 + device, 1, 7), device=device) for device in (2, 0, 1)]
    found = label_streams(np.concatenate(busy), NAMES)
    assert sorted(found.values()) == ["compute0", "compute0:gpu1", "compute0:gpu2"]
    assert found[stream_key(0, 7)] == "compute0"


def test_a_job_that_makes_streams_forever_mints_no_labels_forever():
    """A new stream every window for 200 windows: labels of idle ones are used again."""
    labels, seen = StreamLabels(), set()
    for window in range(200):
        seen |= set(labels.update(find_pairs(kernels((0, 10, 1, 100 + window))), NAMES).values())
    assert seen == {f"compute{number}" for number in range(10)}


def test_more_streams_at_a_time_than_labels_share_one():
    """A thousand live streams are 33 labels."""
    found = label_streams(kernels(*((0, 10, 1, stream) for stream in range(1000))), NAMES)
    assert len(set(found.values())) == 33
    assert found[999] == "compute_rest"


@pytest.mark.traces
def test_the_ranks_of_a_real_job_have_the_same_streams(traces: Path):
    """DLRM on eight GPUs of one host: eight device numbers, one set of labels; the communicator is dp's."""
    seen = set()
    for file in sorted((traces / "dlrm_kineto").glob("*.json.gz")):
        (recording,) = read_files([file])
        names, pairs = dict(enumerate(recording.texts)), find_pairs(recording.kernels)
        identity = Identity("dlrm", recording.rank, coordinates={"dp": recording.rank}, sizes={"dp": 8})
        dimensions = find_dimensions(recording.kernels, pairs, names, identity)
        seen.add(frozenset(StreamLabels().update(pairs, names, dimensions.get).values()))
    assert seen == {frozenset({"compute0", "compute1", "copy0", "nccl:dp"})}
