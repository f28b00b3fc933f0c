"""Who is late without a reason of its own, and who has one."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from argus_exporter.stacks.folded import Stack
from argus_exporter.stacks.totals import telling_frame
from rules.scenario import STORIES, Scenario

pytestmark = STORIES

RANKS = 8
SAMPLES = 60
AT = "10m"
CULPRITS = "max by (rank, group, cause) (rank:argus_verdict:active{verdict='culprit'})"
WAIT_S = 1.0
"""What a rank waits for the last of its group, at each step."""


def steps(waits: Mapping[int, float], forwards: Mapping[int, float] | None = None) -> Scenario:
    """Eight ranks, four steps in a scrape, each with a forward of 2.5 s and a collective."""
    job = Scenario(("job", "work", "phases", "masked", "host", "verdicts"))
    job.ranks(range(RANKS), SAMPLES)
    for rank in range(RANKS):
        forward = (forwards or {}).get(rank, 2.5)
        job.phase(rank, "forward", f"0+4x{SAMPLES}", f"0+{4 * forward}x{SAMPLES}")
        wait = waits.get(rank, WAIT_S)
        job.phase(rank, "grad_sync", f"0+4x{SAMPLES}", f"0+{4 * wait:.6g}x{SAMPLES}", kind="comm")
    return job


def late(rank: int) -> str:
    return f'{{rank="{rank}", group="dp", cause="collective-late"}}'


def test_the_last_to_arrive_is_named() -> None:
    job = steps({2: 0.7})
    job.expect(CULPRITS, AT, {late(2): 1})
    job.run()


@pytest.mark.parametrize("last", [WAIT_S, 0.4])
def test_the_rest_of_the_pipeline_is_late_with_a_slow_link(last: float) -> None:
    """The experts of ranks 2 and 3 need 0.6 s longer. Rank 4 of their pipeline is as late; 6 is not of it."""
    job = steps({2: 0.4, 4: 0.4, 6: last})
    with_experts(job, {1: 0.9})
    for rank in range(RANKS):
        pipeline = 1 if rank in (2, 3, 4) else 0
        job.add("argus_rank_info", f"1x{SAMPLES}", rank=rank, dp=pipeline, pp=rank % 2)
    # Restarted in another place a while ago, and for some minutes in both.
    job.add("argus_rank_info", f"1x{SAMPLES}", rank=3, dp=2, pp=1)
    link = {'{group="ep:1", cause="link-slow"}': 1.0}
    job.expect(CULPRITS, AT, link | ({late(6): 1.0} if last < WAIT_S else {}))
    job.run()


def test_half_of_a_group_is_no_straggler() -> None:
    """Two kinds of GPU, or two of cable: that is how the job is, and no rank of it is to blame."""
    job = steps(dict.fromkeys(range(4), 0.2))
    job.expect(CULPRITS, AT, {})
    job.run()


def test_three_of_eight_are() -> None:
    job = steps(dict.fromkeys(range(3), 0.2))
    job.expect(CULPRITS, AT, {late(rank): 1 for rank in range(3)})
    job.run()


def test_what_another_rank_loses_in_its_own_phases_explains_it() -> None:
    """Rank 4 computes 0.3 s longer, too little for a straggler; rank 5, of its pipeline, is as late."""
    job = steps({4: 0.7, 5: 0.7}, {4: 2.8})
    job.expect(CULPRITS, AT, {})
    job.run()


def with_experts(job: Scenario, gathered: Mapping[int, float]) -> None:
    """The experts of each pair of ranks are gathered in 0.3 s, of those given in so many."""
    for rank in range(RANKS):
        seconds = 4 * gathered.get(rank // 2, 0.3)
        group = f"ep:{rank // 2}"
        job.phase(
            rank, "ep-all-gather", f"0+4x{SAMPLES}", f"0+{seconds:.6g}x{SAMPLES}", kind="comm", group=group
        )


def test_a_slow_link_explains_that_its_ranks_are_late_elsewhere() -> None:
    """Ranks 2 and 3 need 0.9 s for their experts, and so are late for all others: it is the link."""
    job = steps({2: 0.4, 3: 0.4})
    with_experts(job, {1: 0.9})
    job.expect(CULPRITS, AT, {'{group="ep:1", cause="link-slow"}': 1})
    job.run()


def collects(job: Scenario, seconds: Mapping[int, float]) -> None:
    """So many seconds of garbage collection in each scrape interval."""
    for rank in range(RANKS):
        for part, each in (("sum", seconds.get(rank, 0)), ("count", 1)):
            job.add(f"argus_gc_pause_seconds_{part}", f"0+{each}x{SAMPLES}", rank=rank, generation="2")


def test_members_that_pause_make_no_link_slow() -> None:
    """Ranks 2 and 3 wait for each other's collections in their collective."""
    job = steps({})
    with_experts(job, {1: 0.9})
    collects(job, {2: 2.4, 3: 2.4})
    job.expect(CULPRITS, AT, {f'{{rank="{rank}", group="host", cause="host-gc"}}': 1 for rank in (2, 3)})
    job.run()


def test_members_that_stall_in_turn_make_no_link_slow() -> None:
    """Ranks 2 and 3 load for 0.6 s longer, at steps of their own, and wait for each other as long."""
    job = steps({})
    with_experts(job, {1: 0.9})
    for rank in range(RANKS):
        seconds = 4 * (0.8 if rank in (2, 3) else 0.2)
        job.phase(rank, "data", f"0+4x{SAMPLES}", f"0+{seconds:.6g}x{SAMPLES}", kind="host")
    job.expect(CULPRITS, AT, {f'{{rank="{rank}", group="dp", cause="data-input"}}': 1 for rank in (2, 3)})
    job.run()


def test_small_pauses_leave_a_link_slow() -> None:
    """All ranks collect for a hundredth of their time."""
    job = steps({2: 0.4, 3: 0.4})
    with_experts(job, {1: 0.9})
    collects(job, dict.fromkeys(range(RANKS), 0.15))
    job.expect(CULPRITS, AT, {'{group="ep:1", cause="link-slow"}': 1})
    job.run()


def test_links_of_half_of_the_groups_are_not_slow() -> None:
    """Two of four groups have more to gather, as those of one stage may."""
    job = steps({})
    with_experts(job, {0: 1.5, 1: 1.5})
    job.expect(CULPRITS, AT, {})
    job.run()


def test_links_are_compared_within_a_stage() -> None:
    """The second stage sends twice as much; in the first, the group of replica 2 is slow."""
    job = steps({})
    for replica in range(3):
        for stage in range(2):
            seconds = 4 * (0.3, 0.6)[stage] * (1.8 if (replica, stage) == (2, 0) else 1)
            for rank in range(2):
                where = f"tp:dp{replica}.pp{stage}"
                number = 4 * replica + 2 * stage + rank
                job.phase(
                    number,
                    "tp-all-reduce",
                    f"0+4x{SAMPLES}",
                    f"0+{seconds:.6g}x{SAMPLES}",
                    kind="comm",
                    group=where,
                )
    job.expect(CULPRITS, AT, {'{group="tp:dp2.pp0", cause="link-slow"}': 1})
    job.run()


def test_pauses_explain_it() -> None:
    """Rank 2 is late by what its garbage collector takes."""
    job = steps({2: 0.7})
    collects(job, {2: 1.2})
    job.expect(CULPRITS, AT, {'{rank="2", group="host", cause="host-gc"}': 1})
    job.run()


def compiles(job: Scenario, seconds: int) -> None:
    """Rank 2 compiles for so long every two minutes."""
    for rank in range(RANKS):
        compiled = [seconds * (sample // 8) if rank == 2 else 0 for sample in range(SAMPLES)]
        job.add("argus_compile_seconds_sum", " ".join(map(str, compiled)), rank=rank, compiler="inductor")


def test_late_by_a_compilation_is_late_by_its_host() -> None:
    """Rank 2 compiles for 7 s in one minute of two: no habit, but the others wait for it."""
    job = steps({2: 0.75})
    compiles(job, 7)
    job.expect(CULPRITS, AT, {'{rank="2", group="dp", cause="host-jit"}': 1})
    job.run()


def test_slow_by_a_compilation_is_slow_by_its_host() -> None:
    """The same inside its forward, which takes 2.9 s in the mean."""
    job = steps({}, {2: 2.9})
    compiles(job, 10)
    job.expect(CULPRITS, AT, {'{rank="2", group="dp", cause="host-jit"}': 1})
    job.run()


def test_who_has_less_to_do_makes_nobody_late() -> None:
    """Rank 6 waits longest; rank 2 is last by a little, which costs the others less than a percent."""
    job = steps({2: 0.1, 6: 1.0} | dict.fromkeys((0, 1, 3, 4, 5, 7), 0.13))
    job.expect(CULPRITS, AT, {})
    job.run()


@pytest.mark.parametrize(("more", "said"), [(0.2, {}), (0.02, {late(2): 1})])
def test_more_work_makes_late_by_as_much(more: float, said: dict[str, float]) -> None:
    """Rank 2 is late by a fifth of the time. The work is uneven anyway."""
    job = steps({2: 0.25})
    for rank in range(RANKS):
        tokens = 1000 * {2: 1 + more, 5: 0.7}.get(rank, 1.0)
        job.add("argus_work_units_total", f"0+{tokens:g}x{SAMPLES}", rank=rank, unit="tokens")
    job.expect(CULPRITS, AT, said)
    job.run()


COMPILING = "compile (triton/compiler/compiler.py:226)"


def sampled(job: Scenario, rank: int, frame: str, a_scrape: float) -> None:
    """Samples of the main thread in this frame of py-spy, under the label that the exporter gives it."""
    label = telling_frame(Stack("MainThread", (frame,)))
    samples = f"0+{a_scrape:g}x{SAMPLES}"
    job.add("argus_stack_samples_total", samples, rank=rank, thread="MainThread", frame=label)


def stacks(job: Scenario, frames: Mapping[int, str], share: float = 0.3) -> None:
    """Ten samples of the main thread a second: of these ranks so many in that frame."""
    for rank in range(RANKS):
        telling = 150 * share if rank in frames else 0
        if rank in frames:
            sampled(job, rank, frames[rank], telling)
        sampled(job, rank, "synchronize (torch/cuda/__init__.py:1040)", 150 - telling)


@pytest.mark.parametrize(
    ("frame", "compiles"),
    [
        (COMPILING, True),
        ("_compile (torch/_dynamo/convert_frame.py:1700)", True),
        ("compile_fx_inner (torch/_inductor/compile_fx.py:700)", True),
        ("CompileCallable._compile (cutlass/base_dsl/compiler.py:9)", True),
        ("compile_graph (graph.py:310)", True),
        # Calls what was compiled: 7 % of the samples of a compiled model that was measured.
        ("_TorchDynamoContext.__call__.<locals>.compile_wrapper (torch/_dynamo/eval_frame.py:963)", False),
        ("JITFunction.run (triton/runtime/jit.py:700)", False),
        ("compile (re/_compiler.py:745)", False),
        ("_compile (regex/_main.py:460)", False),
    ],
)
def test_stacks_tell_of_a_compilation_that_nobody_counts(frame: str, compiles: bool) -> None:
    """Rank 2 is late, and its main thread stands in a compiler, or in what is none, for as long."""
    job = steps({2: 0.75})
    stacks(job, {2: frame}, 0.07)
    job.expect(CULPRITS, AT, {'{rank="2", group="dp", cause="host-jit"}' if compiles else late(2): 1})
    job.run()


def test_a_little_compiling_does_not_make_a_rank_that_late() -> None:
    """Ten percent of its time, where the others wait for it for a fifth."""
    job = steps({2: 0.25})
    stacks(job, {2: COMPILING}, 0.1)
    job.expect(CULPRITS, AT, {late(2): 1})
    job.run()


def test_what_a_waiting_thread_does_in_between_explains_little() -> None:
    """py-spy leaves out threads that wait: all samples of rank 2 are in a compiler, a tenth of the time."""
    job = steps({2: 0.25})
    for rank in range(RANKS):
        job.add("argus_stack_sampling_hertz", f"10x{SAMPLES}", rank=rank)
    sampled(job, 2, COMPILING, 15)
    job.expect(CULPRITS, AT, {late(2): 1})
    job.run()


def test_transfers_between_two_ranks_make_nobody_late() -> None:
    """Rank 2 receives in no time, as the stage before it is early."""
    job = steps({})
    for rank in range(RANKS):
        seconds = 0.1 if rank == 2 else 0.8
        job.phase(
            rank,
            "pp-recv",
            f"0+4x{SAMPLES}",
            f"0+{4 * seconds:.6g}x{SAMPLES}",
            kind="comm",
            group="stage:pp1",
        )
    job.expect(CULPRITS, AT, {})
    job.run()


def test_lateness_is_a_ticket_before_it_pages() -> None:
    """It costs 7 % of the time. At three minutes of age the worker has looked at its kernels."""
    job = steps({2: 0.75})
    firing = "max by (severity) (ALERTS{alertname='ArgusCollectiveLateRank', alertstate='firing'})"
    job.expect(firing, "3m30s", {'{severity="ticket"}': 1})
    job.expect(firing, "8m", {'{severity="page"}': 1})
    job.run()


def test_lateness_that_comes_and_goes_does_not_page() -> None:
    """Rank 2 is late for a minute, then for two it is not; after that it stays late."""
    job = Scenario(("job", "work", "phases", "masked", "host", "verdicts"))
    job.ranks(range(RANKS), SAMPLES)
    for rank in range(RANKS):
        waits = [
            4 * (0.5 if rank == 2 and (5 <= sample / 4 < 6 or sample / 4 > 8) else WAIT_S)
            for sample in range(SAMPLES)
        ]
        job.phase(rank, "forward", f"0+4x{SAMPLES}", f"0+10x{SAMPLES}")
        seconds = " ".join(f"{sum(waits[:sample]):g}" for sample in range(SAMPLES))
        job.phase(rank, "grad_sync", f"0+4x{SAMPLES}", seconds, kind="comm")
    late_for = "max by (rank) (rank:argus_verdict:active{cause='collective-late'} %s)"
    for then, said in (("", 1), ("offset 1m", 1), ("offset 2m", 0), ("offset 3m", 1)):
        job.expect(late_for % then, "10m", {'{rank="2"}': 1} if said else {})
    pages = "max by (rank) (ALERTS{alertname='ArgusCollectiveLateRank', severity='page'})"
    job.expect(pages, "10m", {})
    job.expect(pages, "13m", {'{rank="2"}': 1})
    job.run()
