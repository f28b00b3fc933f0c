"""Every file opens in Perfetto's own trace processor and says what went in."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from argus_core import wire
from argus_core.kernel_names import kernel_id
from argus_core.kernel_records import KERNEL_DTYPE, KernelArray
from argus_exporter.kernels.communicator_streams import Members, stream_of
from argus_exporter.kernels.pairs import stream_keys
from argus_exporter.place.topology import Identity
from argus_exporter.traces.encode import encode
from argus_exporter.traces.lanes import LANES
from argus_exporter.traces.window import LayerSample, TraceWindow
from exporter.traces.trace_windows import (
    BEGIN,
    STEP_NS,
    STREAMS,
    TEXTS,
    identity,
    kernels,
    operations,
    window,
)
from trace_processor import open_trace

pytestmark = pytest.mark.servers  # node runs the trace processor
SLICES = """
    select s.ts, s.dur, s.category, s.name, t.name as thread, p.name as process,
      extract_arg(s.arg_set_id, 'debug.kernel') as kernel, extract_arg(s.arg_set_id, 'debug.bytes') as bytes
    from slice s join thread_track tt on s.track_id = tt.id
    join thread t using (utid) join process p using (upid)
"""


def test_every_kernel_is_a_slice_on_its_stream(tmp_path: Path) -> None:
    """Start, duration, category, full name, short id, bytes of copies: record by record."""
    given = window()
    with open_trace(encode(given), folder=tmp_path) as trace:
        found = trace.rows(f"{SLICES} where t.name like 'stream %'")
    expected: Counter = Counter()
    for record, key in zip(given.kernels, stream_keys(given.kernels).tolist(), strict=True):
        name = TEXTS[int(record["name_id"])]
        copy = record["operation"] != wire.Operation.KERNEL
        expected[
            int(record["start_ns"]),
            int(record["duration_ns"]),
            wire.Operation(int(record["operation"])).name.lower(),
            name,
            f"stream {STREAMS[key]}",
            "rank 3 (dp1 tp0 pp2)",
            kernel_id(name),
            int(record["kilobytes"]) * 1024 if copy else None,
        ] += 1
    # Kernels of one stream that overlap lie on further threads, named `... #2`.
    assert Counter((*row[:4], row[4].split(" #")[0], *row[5:]) for row in found) == expected


def of_nccl(words: list[int]) -> KernelArray:
    """Kernels of one stream, one after another, by who launched them (`wire.launched_by`)."""
    some = kernels(len(words))
    some["operation"], some["stream"], some["device"] = wire.Operation.KERNEL, 8, 0
    some["kilobytes"] = words
    return some


def said_of_kernels(given: TraceWindow, folder: Path, *names: str) -> list[tuple[object, ...]]:
    """These annotations of all kernels, in the order of time."""
    columns = ", ".join(f"extract_arg(arg_set_id, 'debug.{name}') as {name}" for name in names)
    with open_trace(encode(given), folder=folder) as trace:
        rows = trace.rows(f"select {columns} from slice where category = 'kernel' order by ts")
    return [tuple(row) for row in rows]


def test_a_kernel_of_nccl_says_whose_it_is(tmp_path: Path) -> None:
    """Its communicator, and the sequence of its one operation or how many it does; it has no bytes."""
    words = [
        wire.launched_by(2, 1, sequence=77),
        wire.launched_by(2, 1, operations=3),
        wire.launched_by(3, 1, sequence=77),
        0,
    ]
    given = dataclasses.replace(window(), kernels=of_nccl(words))
    found = said_of_kernels(given, tmp_path, "communicator", "sequence", "operations", "bytes")
    two, three = (2 << 9 | 1), (3 << 9 | 1)
    assert found == [(two, 77, None, None), (two, None, 3, None), (three, 77, None, None), (None,) * 4]


def test_a_kernel_of_several_operations_says_which(tmp_path: Path) -> None:
    """Collectives with their numbers, and the first one's by itself; sends and receives with their peers."""
    words = [wire.launched_by(slot, 1, operations=2) for slot in (2, 3, 2)]  # of the last one nothing came
    some = of_nccl(words)
    told = [("AllGather", 40_000, -1), ("ReduceScatter", 7, -1)], [("Send", 0, 1), ("Recv", 0, 3)], []
    given = dataclasses.replace(
        window(),
        kernels=some,
        operations=operations(some, told),
        members={stream_of(3, 1): Members({1: 5}, "pp")},
    )
    assert said_of_kernels(given, tmp_path, "sequence", "operations", "list") == [
        (40_000 - wire.LAUNCHED_ONE, 2, "AllGather 40000, ReduceScatter 7"),
        (None, 2, "Send to 1 (rank 5), Recv from 3 (pp3)"),
        (None, 2, None),
    ]


def test_flows_lead_from_each_launch_to_its_kernel(tmp_path: Path) -> None:
    """As many as there are known launches; each as long as the issue latency."""
    given = window()
    with open_trace(encode(given), folder=tmp_path) as trace:
        found = trace.rows(
            """select o.category, o.ts as launched, i.ts, i.dur from flow
            join slice o on o.id = flow.slice_out join slice i on i.id = flow.slice_in"""
        )
    known = given.kernels[given.kernels["issue_ns"] >= 0]
    expected = Counter(
        ("launch", int(k["start_ns"]) - int(k["issue_ns"]), int(k["start_ns"]), int(k["duration_ns"]))
        for k in known
    )
    assert Counter(found) == expected
    assert len(known) > 1000


def test_phases_and_iterations_carry_what_is_known_of_them(tmp_path: Path) -> None:
    """Kind, group, source, step and microbatch are annotations; sources lie on threads of their own."""
    given = window()
    with open_trace(encode(given), folder=tmp_path) as trace:
        found = trace.rows(
            """select s.category, s.ts, s.dur, s.name, t.name as thread,
            extract_arg(s.arg_set_id, 'debug.kind') as kind,
            extract_arg(s.arg_set_id, 'debug.group') as "group",
            extract_arg(s.arg_set_id, 'debug.source') as source,
            extract_arg(s.arg_set_id, 'debug.step') as step,
            extract_arg(s.arg_set_id, 'debug.microbatch') as microbatch
            from slice s join thread_track tt on s.track_id = tt.id join thread t using (utid)
            where s.category in ('phase', 'iteration') order by s.ts"""
        )
    phases = Counter((*row[1:4], row[4].split(" #")[0], *row[5:]) for row in found if row[0] == "phase")
    assert phases == Counter(
        (
            int(span["start_ns"]),
            int(span["duration_ns"]),
            TEXTS[int(span["phase_id"])],
            f"phases {wire.Source(span['source']).name.lower()}",
            wire.Kind(span["kind"]).name.lower(),
            "dp:pp2.tp0",
            wire.Source(span["source"]).name.lower(),
            int(span["step"]),
            int(span["microbatch"]),
        )
        for span in given.spans
    )
    iterations = [(*row[1:4], row[8]) for row in found if row[0] == "iteration"]
    assert iterations == [(BEGIN, STEP_NS, "step 128", 128), (BEGIN + STEP_NS, STEP_NS, "step 129", 129)]


def test_layers_are_threads_of_their_own(tmp_path: Path) -> None:
    """By clock, each with its place, micro-batch and step: no phase has them."""
    with open_trace(encode(window()), folder=tmp_path) as trace:
        found = trace.rows(
            """select t.name as thread, s.category, s.name, s.ts, s.dur,
              extract_arg(s.arg_set_id, 'debug.microbatch') as microbatch,
              extract_arg(s.arg_set_id, 'debug.step') as step
            from slice s join thread_track tt on s.track_id = tt.id join thread t using (utid)
            where t.name like 'layers %' order by 1, s.ts"""
        )
    assert [tuple(row) for row in found] == [
        ("layers event", "layer", "mlp 12", BEGIN + 9_000, 4_000_000, 3, 128),
        ("layers event", "layer", "mlp 13", BEGIN + 8_009_000, 4_000_000, 3, 128),
        ("layers host", "layer", "stage_forward 1", BEGIN, 20_000_000, 3, 128),
    ]


def test_the_window_says_whose_it_is(tmp_path: Path) -> None:
    """One instant, at the end of the file, with everything an analysis needs."""
    with open_trace(encode(window()), folder=tmp_path) as trace:
        rows = trace.rows(
            "select a.key, a.display_value from slice s join args a using (arg_set_id) "
            "where s.category = 'argus' and s.name = 'window'"
        )
    assert {key.removeprefix("debug."): value for key, value in rows} == {
        "training_job": "llama-70b",
        "rank": "3",
        "node": "node-7",
        "gpu_uuid": "GPU-1234",
        "role": "pp2.tp0",
        "world_size": "16",
        "dp": "1",
        "tp": "0",
        "pp": "2",
        "dp_size": "4",
        "tp_size": "1",
        "pp_size": "4",
        "first_step": "128",
        "last_step": "129",
        "start_ns": str(BEGIN),
        "end_ns": str(BEGIN + 2 * STEP_NS),
        "dropped": "12",
        "argus_version": dict(rows)["debug.argus_version"],
    }


def test_collector_samples_and_counters(tmp_path: Path) -> None:
    """GC and compilation, a flame graph's samples within their stretch of time, records dropped."""
    with open_trace(encode(window()), folder=tmp_path) as trace:
        assert trace.rows(f"select category, name, ts, dur from ({SLICES}) where thread = 'collector'") == [
            ("gc", "gc generation 2", BEGIN + 5_000, 3_000_000),
            ("compile", "dynamo", BEGIN + STEP_NS, 70_000_000),
        ]
        stacks = trace.rows(
            f"""select t.name as thread, f.name as frame, p.name as caller, count(*) as samples,
            min(ts) >= {BEGIN} and max(ts) < {BEGIN + STEP_NS} as inside from perf_sample
            join thread t using (utid) join stack_profile_callsite c on c.id = callsite_id
            join stack_profile_frame f on f.id = c.frame_id
            left join stack_profile_callsite pc on pc.id = c.parent_id
            left join stack_profile_frame p on p.id = pc.frame_id group by 1, 2, 3 order by 4"""
        )
        assert stacks == [
            ("stacks loader", "read (data.py:3)", None, 2, 1),
            ("stacks MainThread", "main (train.py:1)", None, 3, 1),
            ("stacks MainThread", "forward (model.py:7)", "main (train.py:1)", 10, 1),
        ]
        dropped = trace.rows(
            "select c.ts, c.value from counter c join process_counter_track t on c.track_id = t.id "
            "where t.name = 'records dropped' order by 1"
        )
        assert dropped == [(BEGIN, 0.0), (BEGIN + 1000, 5.0), (BEGIN + STEP_NS, 12.0)]


def test_queue_depth_is_what_was_launched_and_not_started(tmp_path: Path) -> None:
    """Three launches at once, the first starts at once, the others 100 and 200 us later."""
    records = np.zeros(3, KERNEL_DTYPE)
    records["start_ns"] = BEGIN + np.array([0, 100_000, 200_000])
    records["issue_ns"] = [0, 100_000, 200_000]
    records["duration_ns"], records["name_id"], records["stream"] = 1000, 5, 7
    given = TraceWindow(identity(), BEGIN, BEGIN + 2_000_000, texts=TEXTS, kernels=records, streams=STREAMS)
    with open_trace(encode(given), folder=tmp_path) as trace:
        rows = trace.rows(
            f"select c.ts - {BEGIN} as at, c.value from counter c "
            "join process_counter_track t on c.track_id = t.id "
            "where t.name = 'queue depth' order by c.ts, c.id"
        )
    assert rows == [(0, 3.0), (100_000, 1.0), (200_000, 0.0), (200_000, 0.0)]


def test_files_of_several_ranks_open_as_one(tmp_path: Path) -> None:
    """Joined end to end: no track, flow or name of one rank meets another's; rank 0 is like the others."""
    parts = [encode(window(500, seed=rank, rank=rank)) for rank in (0, 1, 2)]
    earlier = encode(TraceWindow(identity(9), BEGIN - STEP_NS, BEGIN))
    with open_trace(*parts, earlier, folder=tmp_path) as trace:
        rows = trace.rows(
            f"select process, sum(thread like 'stream %') as kernels, sum(category = 'launch') as launches "
            f"from ({SLICES}) where process not like 'rank 9%' group by 1"
        )
        crossing = trace.value(
            """select count(*) from flow join slice o on o.id = slice_out join slice i on i.id = slice_in
            join thread_track ot on ot.id = o.track_id join thread oh on oh.utid = ot.utid
            join thread_track it on it.id = i.track_id join thread ih on ih.utid = it.utid
            where oh.upid != ih.upid"""
        )
        flows = trace.value("select count(*) from flow")
        assert trace.value("select start_ts from trace_bounds") == BEGIN - STEP_NS
    launches = int((window(500).kernels["issue_ns"] >= 0).sum())
    assert rows == [(f"rank {rank} (dp1 tp0 pp2)", 500, launches) for rank in (0, 1, 2)]
    assert (flows, crossing) == (3 * launches, 0)


def test_the_same_window_gives_the_same_bytes() -> None:
    """Keys and uploads may be compared; kernels in another order make no difference."""
    given = window()
    assert encode(given) == encode(window())
    swapped = dataclasses.replace(given, kernels=given.kernels[np.argsort(given.kernels["name_id"])])
    assert len(encode(swapped)) == pytest.approx(len(encode(given)), rel=0.01)


def test_an_empty_window_is_still_a_trace(tmp_path: Path) -> None:
    """Nothing happened, and the file says so."""
    given = TraceWindow(Identity("job", 0), BEGIN, BEGIN + STEP_NS)
    with open_trace(encode(given), folder=tmp_path) as trace:
        assert trace.rows("select category, name from slice") == [("argus", "window")]
        assert trace.rows("select name from process") == [("rank 0",)]


def test_more_slices_at_a_time_than_lanes_are_cut_off_and_all_there(tmp_path: Path) -> None:
    """200 kernels and 200 layers that all cross each other: none is left open, and none is lost."""
    records = kernels(200)
    records["stream"], records["device"], records["operation"] = 7, 0, wire.Operation.KERNEL
    records["start_ns"], records["duration_ns"] = BEGIN + np.arange(200) * 1000, 1_000_000
    records["issue_ns"] = -1
    layers = [
        LayerSample("block", n, 0, 1, wire.Source.HOST, BEGIN + n * 1000, 1_000_000) for n in range(200)
    ]
    given = TraceWindow(
        identity(), BEGIN, BEGIN + STEP_NS, texts=TEXTS, kernels=records, streams=STREAMS, layers=layers
    )
    with open_trace(encode(given), folder=tmp_path) as trace:
        rows = trace.rows(f"select category, count(*), min(dur) from ({SLICES}) group by category")
        lanes = trace.value("select count(*) from thread where name like 'stream %'")
    assert rows == [("argus", 1, 0), ("kernel", 200, 1000), ("layer", 200, 864_000)]
    assert lanes == LANES


def test_times_near_zero_and_hour_long_kernels_fit(tmp_path: Path) -> None:
    """An imported log may count from zero; varints are padded to one width."""
    records = kernels(50, begin=0, span_ns=1000)
    records["issue_ns"] = -1
    records["stream"], records["device"] = 7, 0
    records["start_ns"][:] = np.arange(50) * 4 * 10**12
    records["duration_ns"][:] = np.where(np.arange(50) % 2, 1, 3_600_000_000_000)
    given = TraceWindow(identity(), 0, 50 * 4 * 10**12, texts=TEXTS, kernels=records, streams=STREAMS)
    with open_trace(encode(given), folder=tmp_path) as trace:
        rows = trace.rows("select ts, dur from slice where category != 'argus' order by ts")
    assert rows == [(int(r["start_ns"]), int(r["duration_ns"])) for r in records]
