"""Blame is right where the cause is known, and silent where there is none."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from bench.blame import judge

from argus_simulator.engine.faults import Fault
from argus_simulator.traces.cases import KINDS, Case, make
from argus_simulator.traces.encode import Clock, clocks_of, encode
from argus_simulator.traces.layout import Layout
from argus_simulator.traces.timeline import RankTimeline, play, usual_shape
from argus_traces.blame import Blame, blame
from argus_traces.chain import chain
from argus_traces.clocks import align
from argus_traces.exchanges import match
from argus_traces.expectation import expected_by
from argus_traces.operations import gather
from argus_traces.reader import read
from argus_traces.tables import RankTrace

CASES = 20
"""Two of each kind, on seeds that no threshold was chosen on; `make verify` judges 200 (bench.blame)."""
FIRST_SEED = 770_000


def _traces(case: Case) -> list[RankTrace]:
    return [read([data], str(rank)) for rank, data in enumerate(case.files)]


def _write(layout: Layout, timelines: Sequence[RankTimeline], clocks: dict[str, Clock]) -> list[RankTrace]:
    files = [encode(layout, one, clocks[layout.host(one.rank)]) for one in timelines]
    return [read([data], str(rank)) for rank, data in enumerate(files)]


@pytest.fixture(scope="module")
def masked(masked_stage: Case) -> Blame:
    """What is said of `masked_stage`."""
    return blame(_traces(masked_stage))


@pytest.mark.slow
def test_known_causes_are_found_and_healthy_jobs_left_alone() -> None:
    """Cause, ranks and group exactly right in 95 % of the cases; no accusation without a fault."""
    kinds = sorted(KINDS)
    outcomes = [judge(make(kinds[number % len(kinds)], FIRST_SEED + number)) for number in range(CASES)]
    wrong = [one for one in outcomes if not one.right]
    assert [one for one in wrong if one.kind == "healthy"] == []
    assert len(wrong) <= 0.05 * CASES, "\n".join(
        f"{one.kind} {one.seed}: {one.true} | {one.said}" for one in wrong
    )


@pytest.mark.parametrize("kind", ["argus-case-2", "argus-case-3", "argus-case-4", "argus-case-5"])
def test_the_papers_cases_are_found(kind: str) -> None:
    """Slow EDP link, stage masked by the gradients' sync, JIT in one microbatch, half an EP group."""
    outcome = judge(make(kind, 770_100))
    assert outcome.right, f"{outcome.true} | {outcome.said}"


def test_victims_are_never_named_beside_the_culprit(masked: Blame, masked_stage: Case) -> None:
    """Every rank waits for rank 7; only rank 7 is named."""
    named = {rank for finding in masked.findings for rank in finding.ranks}
    assert named == set(masked_stage.truth.ranks) == {7}


def test_the_chain_leads_from_a_waiting_rank_to_the_slow_one(masked: Blame) -> None:
    """Symptom first: somebody waits. Cause last: rank 7's kernels, longer than usual."""
    hops = chain(masked, masked.findings[0])
    assert "waited" in hops[0].text and hops[0].waited_seconds > 0.05
    assert hops[-1].root and hops[-1].rank == 7
    assert hops[-1].seconds > hops[-1].expected_seconds
    assert len(hops) <= 7


def test_the_links_of_the_chain_fill_the_window_without_overlap(masked: Blame) -> None:
    """Each moment belongs to one link, so costs add up; what is left is rounding and alignment."""
    links = masked.links
    assert all(link.end >= link.begin for link in links)
    total = sum(link.end - link.begin for link in links)
    assert total / 1e9 == pytest.approx(masked.seconds, rel=0.01)
    gaps = [earlier.end - later.begin for later, earlier in pairwise(links)]
    assert max(map(abs, gaps)) < 50_000


def test_the_cost_is_what_the_job_loses(masked: Blame, masked_stage: Case) -> None:
    """Against the same job without the fault, within a third: the peers' kernels vary too."""
    lost = masked_stage.cost_ratio / (1 + masked_stage.cost_ratio)
    assert masked.findings[0].cost_ratio == pytest.approx(lost, rel=0.34)


@pytest.mark.slow
def test_clocks_of_hosts_do_not_change_the_verdict() -> None:
    """The same timeline with true clocks, and with clocks 40 ms apart that drift by 20 ppm."""
    layout = Layout(4, 1, 2)
    case = make("argus-case-3", 12)
    assert case.truth.ranks
    timelines = play(usual_shape(layout), (), 6, 3)
    true = {host: Clock() for host in clocks_of(layout, 0)}
    skewed = {"sim-host-0": Clock(-0.02, 0.0), "sim-host-1": Clock(0.02, 2e-5)}
    straight, crooked = (blame(_write(layout, timelines, clocks)) for clocks in (true, skewed))
    assert [link.operation for link in straight.links] == [link.operation for link in crooked.links]
    assert straight.seconds == pytest.approx(crooked.seconds, rel=1e-3)


def test_clocks_are_aligned_to_microseconds() -> None:
    """30 ms and 20 ppm are taken out: starts lie where they were, within 20 us."""
    layout = Layout(8, ranks_per_host=4)
    timelines = play(usual_shape(layout), (), 8, 5)
    clocks = {"sim-host-0": Clock(), "sim-host-1": Clock(0.03, 2e-5)}
    fleet = gather(_write(layout, timelines, clocks))
    exchanges = match(fleet)
    aligned, alignment = align(fleet, exchanges)
    truth = gather(_write(layout, timelines, {"sim-host-0": Clock(), "sim-host-1": Clock()}))
    error = np.abs(aligned["start"] - truth.operations["start"])
    assert error.max() < 20_000
    assert alignment.hosts == 2 and alignment.apart == () and alignment.spread_ns < 5_000


def test_a_missing_rank_is_noted() -> None:
    """Seven of eight traces: still the right rank, and a word of caution."""
    case = make("gc", 5)
    traces = [trace for trace in _traces(case) if trace.window.rank != 7]
    found = blame(traces)
    assert found.findings[0].cause == "host-gc" and set(found.findings[0].ranks) == set(case.truth.ranks)
    assert any("7 of 8 ranks" in note for note in found.notes)


@pytest.mark.parametrize(("kind", "seed", "given"), [("healthy", 0, (3, 4)), ("gc", 0, (0, 2))])
def test_who_waits_for_a_rank_without_a_trace_is_not_the_root_cause(
    kind: str, seed: int, given: tuple[int, int]
) -> None:
    """Two of eight traces, and the one who is to blame is not among them: a note, and nobody is named."""
    case = make(kind, seed)
    assert not case.truth.ranks & set(given)
    found = blame([_traces(case)[rank] for rank in given])
    assert found.findings == ()
    assert any("waited, maybe for communications that have no partner" in note for note in found.notes)


@pytest.mark.parametrize(
    ("kind", "seed", "given", "sizes", "named"),
    [
        ("compute", 1, (0, 1, 2, 4, 5, 6, 7), {"dp": 4, "tp": 1}, False),
        ("late-launch", 0, (0, 4, 7), {"dp": 4, "tp": 2}, False),
        ("link", 0, (1, 3, 5, 7), {"dp": 2, "tp": 2}, True),
        ("link", 0, (1, 3, 5, 7), {}, False),
    ],
)
def test_a_link_is_named_only_where_its_whole_group_has_traces(
    kind: str, seed: int, given: tuple[int, ...], sizes: dict[str, int], named: bool
) -> None:
    """Without the trace of a slow rank those who wait for it look like a slow link of their group."""
    traces = [trace for trace in _traces(make(kind, seed)) if trace.window.rank in given]
    found = blame(
        [dataclasses.replace(one, window=dataclasses.replace(one.window, sizes=sizes)) for one in traces]
    )
    assert ("link-slow" in {one.cause for one in found.findings}) is named
    assert any("may be slow, or wait for members that have no trace" in note for note in found.notes) != named


def test_ranks_without_kernels_are_blamed_by_their_phases() -> None:
    """The kernel channel is off: phases alone still lead to the slow rank."""
    case = make("compute", 0)
    traces = [_without_kernels(trace) for trace in _traces(case)]
    found = blame(traces)
    assert found.findings and set(found.findings[0].ranks) == set(case.truth.ranks)
    assert found.findings[0].cause == "gpu-compute"


def _without_kernels(trace: RankTrace) -> RankTrace:
    dropped = [n for n, text in enumerate(trace.strings) if text in ("kernel", "memcpy", "memset", "launch")]
    return dataclasses.replace(trace, slices=trace.slices[~np.isin(trace.slices["category"], dropped)])


def test_collectives_without_phases_match_by_the_dimension_of_their_stream() -> None:
    """As the exporter names streams: `nccl:dp`. The kernel's name gives the operation."""
    layout = Layout(8)
    pause = Fault("pause", (5,), seconds=0.3, kind="gc", position=0.2, onset_step=2, end_step=3)
    timelines = play(usual_shape(layout), (pause,), 5, 3)
    traces = []
    for trace in _write(layout, timelines, clocks_of(layout, 3)):
        comm = np.array([text == "comm" for text in trace.strings])
        tracks = tuple(name.replace("stream nccl0", "stream nccl:dp") for name in trace.tracks)
        kept = trace.slices[~comm[trace.slices["kind"]] | (trace.slices["kind"] < 0)]
        traces.append(dataclasses.replace(trace, slices=kept, tracks=tracks))
    found = blame(traces)
    assert found.model.exchanges.unmatched == 0
    assert "all_reduce dp:pp0.tp0" in {one.label for one in found.model.exchanges.all}
    assert [(one.cause, one.ranks) for one in found.findings] == [("host-gc", (5,))]


def test_communications_match_by_group_and_number(masked_stage: Case) -> None:
    """Every communication has its partners; only a step that one member lost stays unmatched."""
    traces = _traces(masked_stage)
    whole = match(gather(traces))
    assert whole.unmatched == 0
    assert all(len(set(one.members)) == len(one.members) for one in whole.all)
    first = traces[0]
    phase = first.of("phase")
    lost = phase[[first.text(int(p["name"])) == "dp-all_reduce" for p in phase]][0]
    kept = first.slices[
        ~((first.slices["start_ns"] == lost["start_ns"]) & (first.slices["name"] == lost["name"]))
    ]
    import dataclasses

    partial = match(gather([dataclasses.replace(first, slices=kept), *traces[1:]]))
    assert 0 < partial.unmatched < 10
    assert len(partial.all) < len(whole.all)


def test_the_expectation_leaves_its_owner_out() -> None:
    """Naive twin: the lower median, over the others, of their medians; alone: the own median."""
    random = np.random.default_rng(1)
    classes, who = random.integers(0, 7, 300), random.integers(0, 5, 300)
    values = random.lognormal(size=300)
    found = expected_by(classes, who, values)
    for index in range(300):
        medians = {
            owner: float(np.median(values[(classes == classes[index]) & (who == owner)]))
            for owner in np.unique(who[classes == classes[index]]).tolist()
        }
        own = medians.pop(int(who[index]))
        others = sorted(medians.values())
        assert found[index] == pytest.approx(others[(len(others) - 1) // 2] if others else own)
