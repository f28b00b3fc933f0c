"""The marked file opens in Perfetto's own trace processor."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from argus_simulator.traces.cases import Case, make
from argus_traces.blame import blame
from argus_traces.marked import write_marked
from argus_traces.reader import read
from trace_processor import open_trace


def _marked(case: Case) -> tuple[bytes, int]:
    traces = [read([data], str(rank)) for rank, data in enumerate(case.files)]
    found = blame(traces)
    target = io.BytesIO()
    write_marked(
        target, found, [(str(rank), lambda data=data: [data]) for rank, data in enumerate(case.files)]
    )
    return target.getvalue(), sum(len(trace.of("kernel")) for trace in traces)


@pytest.mark.slow
def test_all_ranks_and_the_chain_are_in_one_file(tmp_path: Path) -> None:
    """Every kernel of every rank under its process; the chain on its own track, with arrows and the blame."""
    data, kernels = _marked(make("gc", 13))
    with open_trace(data, folder=tmp_path) as trace:
        assert trace.value("select count(*) as n from slice where category = 'kernel'") == kernels
        names = {name for (name,) in trace.rows("select name from process where name is not null")}
        assert {"rank 0 (dp0 tp0 pp0)", "ARGUS: what waited for what"} <= names and len(names) == 9
        chain = """from slice s join thread_track tt on s.track_id = tt.id join thread t using (utid)
            where t.name = 'chain of blame'"""
        links = trace.value(f"select count(*) as n {chain}")
        assert links > 50
        blamed = trace.rows(
            "select extract_arg(s.arg_set_id, 'debug.cause') as cause, s.name "
            f"{chain} and s.category = 'blamed'"
        )
        assert ("host-gc", True) in {(cause, name.startswith("rank 0 host")) for cause, name in blamed}
        flows = """select count(*) as n from flow join slice o on o.id = flow.slice_out
            where o.category in ('chain', 'blamed')"""
        assert trace.value(flows) == links - 1
        # Flows from launches to kernels stay within their rank.
        assert (
            trace.value(
                "select count(*) as n from flow join slice o on o.id = flow.slice_out "
                "where o.category = 'launch'"
            )
            >= kernels
        )


@pytest.mark.slow
def test_ranks_lie_on_one_clock(tmp_path: Path) -> None:
    """The ends of the last collective of all ranks lie within 50 us, though hosts' clocks are 10 ms apart."""
    case = make("gc", 13)
    data, _ = _marked(case)
    with open_trace(data, folder=tmp_path) as trace:
        ends = trace.rows(
            """select max(s.ts + s.dur) as t from slice s join thread_track tt on s.track_id = tt.id
            join thread t using (utid) join process p using (upid)
            where s.name in ('world-all_reduce', 'dp-all_reduce') and s.category = 'phase' group by p.upid"""
        )
    assert len(ends) == 8
    assert max(ends)[0] - min(ends)[0] < 50_000
