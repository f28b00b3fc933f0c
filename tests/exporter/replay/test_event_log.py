"""The event log: the documented example reads as documented, and every wrong line is named."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argus_core import wire
from argus_exporter.errors import ArgusExporterError
from argus_exporter.replay import event_log
from argus_exporter.replay.reader import parse_bytes, read_files
from argus_exporter.replay.recording import RankRecording, RecordingError
from conftest import REPOSITORY
from exporter.replay.synthetic import log, write

SPAN = {"rank": 0, "step": 3, "phase": "forward", "kind": "compute", "start": 12.5, "duration": 0.21}
KERNEL = {"rank": 0, "step": 3, "kernel": "gemm", "stream": 7, "start": 12.5, "duration": 0.0004}
ITERATION = {"rank": 0, "step": 3, "iteration": True, "start": 12.4, "duration": 0.35}


def parse(*lines: object) -> list[RankRecording]:
    return parse_bytes(log(*lines), Path("events.jsonl"))


def test_documented_example_reads_as_documented():
    """The first example of docs/event-log.md."""
    text = (REPOSITORY / "docs" / "event-log.md").read_text()
    example = re.search(r"```json\n(.*?)```", text, re.DOTALL)
    assert example is not None
    (recording,) = parse_bytes(example[1].encode(), Path("events.jsonl"))
    identity = recording.identity
    assert (identity.training_job, identity.rank, identity.world_size) == ("demo", 0, 4)
    assert identity.coordinates == {"tp": 0, "dp": 0}
    assert [recording.texts[i] for i in recording.spans["phase_id"]] == ["forward", "dp-allreduce"]
    assert [recording.texts[i] for i in recording.spans["group_id"]] == ["", "dp"]
    assert recording.kernels["duration_ns"].tolist() == [20_000, 402_000]
    assert recording.kernels["operation"].tolist() == [wire.Operation.MEMCPY, wire.Operation.KERNEL]
    assert recording.iterations.tolist() == [(3, 12_480_000_000, 350_000_000)]


def test_every_documented_example_is_accepted():
    """Topology examples included."""
    text = (REPOSITORY / "docs" / "event-log.md").read_text()
    for example in re.findall(r"```json\n(.*?)```", text, re.DOTALL):
        assert parse_bytes(example.encode() + json.dumps(SPAN).encode(), Path("events.jsonl"))


def test_documented_keys_are_the_keys_that_are_read():
    """The table of lines in docs/event-log.md against lines with every key, and with one less."""
    text = (REPOSITORY / "docs" / "event-log.md").read_text()
    rows = re.findall(r"^\| (phase span|kernel|iteration) \| (.*?) \| ?(.*?) ?\|$", text, re.MULTILINE)
    samples: dict[str, object] = {
        **SPAN,
        **KERNEL,
        **ITERATION,
        "group": "dp",
        "source": "host",
        "microbatch": 1,
        "operation": "memset",
        "bytes": 1,
        "issue": 0,
        "device": 1,
    }
    assert [row[0] for row in rows] == ["phase span", "kernel", "iteration"]
    for _, must, may in rows:
        needed, optional = re.findall(r"`(\w+)`", must), re.findall(r"`(\w+)`", may)
        line = {key: samples[key] for key in [*needed, *optional]}
        assert parse(line)
        for key in needed:
            with pytest.raises(RecordingError, match=f"{key} is missing|exactly one of"):
                parse({name: value for name, value in line.items() if name != key})
        for key in samples.keys() - {*line, "phase", "kernel", "iteration"}:
            with pytest.raises(RecordingError, match=f'unknown key "{key}"'):
                parse(line | {key: samples[key]})


def test_line_without_an_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch):
    """A file that is one endless line comes in pieces of the limit."""
    monkeypatch.setattr(event_log, "LINE_LIMIT", 64)
    with pytest.raises(
        RecordingError, match=r"^events\.jsonl:1: longer than 0 MiB; allowed: one JSON object"
    ):
        event_log.parse_event_log([b'{"rank": ' + b"1" * 55], Path("events.jsonl"), None, "job")


def test_large_log_is_read_line_by_line(tmp_path: Path):
    """Larger than every buffer on the way, plain and gzip: each line counts, in any order of time."""
    lines = [KERNEL | {"start": 1000 - index / 100, "step": index} for index in range(20_000)]
    for name in ("a.jsonl", "b.jsonl.gz"):
        content = log(*lines)
        packed = gzip.compress(content) if name.endswith("gz") else content
        (recording,) = read_files([write(tmp_path / name, packed)])
        assert recording.kernel_steps.tolist() == list(reversed(range(20_000)))
        assert recording.kernels["start_ns"][0] == 800_010_000_000


def test_iterations_are_derived_from_spans():
    """A step lasts from the first start to the last end of its spans; kernels do not widen it."""
    late = SPAN | {"phase": "backward", "start": 12.8, "duration": 0.1}
    (recording,) = parse(SPAN, late, KERNEL | {"start": 20.0})
    assert recording.iterations.tolist() == [(3, 12_500_000_000, 400_000_000)]


def test_iterations_are_derived_from_kernels_where_there_are_no_spans():
    """Kernels without a step take no part."""
    stepless = {key: value for key, value in KERNEL.items() if key != "step"} | {"start": 1.0}
    (recording,) = parse(KERNEL, KERNEL | {"start": 12.6}, stepless)
    assert recording.iterations.tolist() == [(3, 12_500_000_000, 100_400_000)]
    assert recording.kernel_steps.tolist() == [-1, 3, 3]


def test_stated_iterations_switch_derivation_off():
    """Only the step that is stated exists."""
    (recording,) = parse(SPAN, SPAN | {"step": 4}, ITERATION)
    assert recording.iterations["step"].tolist() == [3]


def test_coordinates_follow_megatron_order():
    """tp varies fastest, then dp, then pp; ep lies inside dp."""
    topology = {"topology": {"sizes": {"tp": 2, "dp": 4, "pp": 2, "ep": 2}}}
    recordings = parse(topology, *(SPAN | {"rank": rank} for rank in (1, 6, 15)))
    assert [r.identity.coordinates for r in recordings] == [
        {"tp": 1, "dp": 0, "pp": 0, "ep": 0},
        {"tp": 0, "dp": 3, "pp": 0, "ep": 1},
        {"tp": 1, "dp": 3, "pp": 1, "ep": 1},
    ]
    assert all(r.identity.world_size == 16 for r in recordings)


def test_stated_coordinates_go_before_derived_ones():
    """And bring node, GPU and role."""
    entry = {"dp": 1, "tp": 1, "node": "gpu-01", "gpu_uuid": "GPU-1", "role": "stage0"}
    topology = {"topology": {"sizes": {"dp": 2, "tp": 2}, "ranks": {"0": entry}}}
    (recording,) = parse(topology, SPAN)
    identity = recording.identity
    assert identity.coordinates == {"dp": 1, "tp": 1}
    assert (identity.node, identity.gpu_uuid, identity.role) == ("gpu-01", "GPU-1", "stage0")


def test_job_of_the_command_line_goes_before_the_log(tmp_path: Path):
    """Then the topology, then the folder."""
    named = write(tmp_path / "a.jsonl.gz", log({"topology": {"training_job": "t"}}, SPAN))
    assert read_files([named], job="mine")[0].identity.training_job == "mine"
    assert read_files([named])[0].identity.training_job == "t"
    plain = write(tmp_path / "b.jsonl", log(SPAN))
    assert read_files([plain])[0].identity.training_job == tmp_path.name


REFUSED: dict[str, tuple[object, str]] = {
    "no JSON": (b"{", "2: not JSON: .* at column 2; allowed: one JSON object a line"),
    "no object": ([1], r"2: is \[1\]; allowed: one JSON object"),
    "no UTF-8": (b"\xff", "2: not UTF-8 at byte 1"),
    "too deep": (b"[" * 100_000, "2: nested too deeply"),
    "digits": (b"9" * 5000, "2: a number has too many digits"),
    "unknown kind of line": ({"rank": 0}, r'2: has only \["rank"\]; allowed: exactly one of phase, kernel'),
    "two kinds of line": (SPAN | {"kernel": "k"}, "2: has phase and kernel; allowed: exactly one of"),
    "unknown key": (
        SPAN | {"durationn": 1},
        r'2: unknown key "durationn" \(allowed in a phase line: rank, step',
    ),
    "missing key": ({"rank": 0, "kernel": "k"}, r"2: stream is missing \(a kernel line needs rank, kernel"),
    "negative rank": (SPAN | {"rank": -1}, "2: rank is -1; allowed: a whole number from 0 to 2147483647"),
    "rank as text": (SPAN | {"rank": "0"}, '2: rank is "0"; allowed: a whole number'),
    "rank as truth": (SPAN | {"rank": True}, "2: rank is true; allowed: a whole number"),
    "step too large": (SPAN | {"step": 2**32}, "2: step is 4294967296; allowed: a whole number from 0 to"),
    "negative duration": (SPAN | {"duration": -0.1}, "2: duration is -0.1; allowed: seconds from 0 to 1e"),
    "NaN": (
        b'{"rank":0,"step":1,"iteration":true,"start":NaN,"duration":1}',
        "2: start is NaN; allowed: seconds",
    ),
    "huge start": (SPAN | {"start": 10**400}, "2: start is 1000.*; allowed: seconds from 0 to 4e"),
    "unknown phase kind": (SPAN | {"kind": "gpu"}, '2: kind is "gpu"; allowed: compute, comm, host'),
    "unknown source": (SPAN | {"source": 3}, "2: source is 3; allowed: event, host, kernel"),
    "empty name": (KERNEL | {"kernel": ""}, '2: kernel is ""; allowed: a text that is not empty'),
    "iteration false": (ITERATION | {"iteration": False}, "2: iteration is false; allowed: true"),
    "late topology": ({"topology": {}}, "2: the topology is not on the first line; allowed: first, or not"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_line_is_named(case: str):
    """File, line, key, value, and what is allowed."""
    line, message = REFUSED[case]
    with pytest.raises(RecordingError, match=f"^events.jsonl:{message}") as caught:
        parse(SPAN, line)
    assert "\n" not in str(caught.value)


REFUSED_TOPOLOGIES: dict[str, tuple[object, str]] = {
    "no object": (3, "topology is 3; allowed: an object with training_job"),
    "unknown key": ({"job": "x"}, 'unknown key "job" in topology'),
    "size": ({"sizes": {"dp": 0}}, "topology.sizes.dp is 0; allowed: a whole number from 1"),
    "dimension": ({"sizes": {"cp": 2}}, 'unknown key "cp" in topology.sizes'),
    "product": ({"world_size": 8, "sizes": {"dp": 4}}, "dp x pp is 4; allowed: the world_size of 8"),
    "ep": ({"sizes": {"dp": 4, "ep": 3}}, "topology.sizes.ep is 3; allowed: a divisor of dp, which is 4"),
    "rank key": ({"ranks": {"a": {}}}, 'topology.ranks has key "a"; allowed: ranks as texts'),
    "coordinate": (
        {"sizes": {"dp": 2}, "ranks": {"0": {"dp": 2}}},
        "topology.ranks.0.dp is 2; allowed: a whole number from 0 to 1",
    ),
    "job": ({"training_job": 3}, "topology.training_job is 3; allowed: a text"),
}


@pytest.mark.parametrize("case", REFUSED_TOPOLOGIES)
def test_wrong_topology_is_named(case: str):
    """The whole path of the key."""
    topology, message = REFUSED_TOPOLOGIES[case]
    with pytest.raises(RecordingError, match=message) as caught:
        parse({"topology": topology}, SPAN)
    assert str(caught.value).startswith("events.jsonl:1: ")


def test_rank_outside_the_world_is_refused():
    """The topology says how many there are."""
    with pytest.raises(RecordingError, match="2: rank is 4; allowed: below the topology's world_size of 4"):
        parse({"topology": {"world_size": 4}}, SPAN | {"rank": 4})


def test_iteration_stated_twice_is_refused():
    """Running totals would count it twice."""
    with pytest.raises(RecordingError, match="2: iteration of rank 0, step 3 comes twice"):
        parse(ITERATION, ITERATION)


def test_log_without_events_is_refused():
    """A topology alone is nothing to replay."""
    with pytest.raises(RecordingError, match=r"events\.jsonl: no events; allowed: phase, kernel"):
        parse({"topology": {}})


def test_assume_ranks_is_refused_for_a_log(tmp_path: Path):
    """A log names its ranks."""
    with pytest.raises(RecordingError, match="an event log names its ranks; leave out --assume-ranks"):
        read_files([write(tmp_path / "e.jsonl", log(SPAN))], assume_ranks=True)


VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just([]), st.just({})
)
KEYS = st.sampled_from([*SPAN, *KERNEL, "iteration", "topology", "group", "source", "bytes", "issue", "x"])
TOPOLOGY = st.dictionaries(
    st.sampled_from(["training_job", "world_size", "sizes", "ranks"]),
    VALUES
    | st.dictionaries(st.sampled_from(["dp", "tp", "ep", "0", "1"]), VALUES | st.just({"dp": 0}), max_size=3),
)
LINES = st.one_of(
    st.binary(max_size=60),
    st.dictionaries(KEYS, VALUES, max_size=9),
    st.builds(
        lambda base, changes: base | changes,
        st.sampled_from([SPAN, KERNEL, ITERATION]),
        st.dictionaries(KEYS, VALUES, max_size=2),
    ),
    st.builds(lambda topology: {"topology": topology}, TOPOLOGY),
)


@given(st.lists(LINES, max_size=5), st.booleans())
@settings(max_examples=400, deadline=None)
def test_arbitrary_lines_raise_nothing_but_our_error(lines: list[object], begins_well: bool):
    """Whatever the lines hold: recordings, or one line that names the file."""
    try:
        recordings = parse(*([SPAN] if begins_well else []), *lines)
    except ArgusExporterError as error:
        assert re.match(r"events\.jsonl(:\d+)?: ", str(error))
        assert "\n" not in str(error)
    else:
        assert all(r.end_ns >= r.begin_ns for r in recordings)
