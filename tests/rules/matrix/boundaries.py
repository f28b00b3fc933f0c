"""Both sides of every threshold: a job just below it, where the rule is silent, and one at or above it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rules.matrix import runs
from rules.matrix.boundary_jobs import (
    EIGHT,
    behind,
    burdened,
    collecting,
    congested,
    dropping,
    fan,
    fitted,
    gone,
    held_up,
    in_collective,
    in_turn,
    kernel,
    last_slow,
    late,
    launching,
    linked,
    longest,
    lost_since,
    lowest,
    missing,
    observing,
    of_ranks,
    overloaded,
    pinning,
    resumed,
    slow_rank,
    slow_since,
    staged,
    stalled,
    step_change,
    two_levels,
    two_works,
    waiting_within,
    with_spans,
    without_channel,
)
from rules.matrix.jobs import Job
from rules.matrix.world import Says, alert


@dataclass(frozen=True)
class Boundary:
    """
    Attributes:
        threshold: what it is, in words.
        build: the job for one value of what the threshold is about.
        below, above: the two values; the rule speaks of the second.
        speaks: records (with matchers) and alerts that speak or are silent.
    """

    threshold: str
    build: Callable[[float], Job]
    below: float
    above: float
    speaks: tuple[Says, ...]


def record(name: str, matchers: str = "") -> Says:
    return Says(name, "", lambda _: {}, matchers=matchers)


def fires(name: str, severity: str) -> Says:
    return alert(name, severity, "", lambda _: {})


CULPRIT = record("rank:argus_verdict:lost_ratio", 'verdict="culprit"')
BOUNDARIES = (
    Boundary(
        "1.15 of the median, with z",
        slow_rank(),
        1.149,
        1.151,
        (
            record("rank:argus_phase_suspect:lost_ratio"),
            record("rank:argus_phase_suspect:median_ratio"),
            CULPRIT,
            record("rank:argus_verdict:active"),
            record("job:argus_lost_gpus:current"),
            fires("ArgusStragglerRank", "ticket"),
        ),
    ),
    Boundary("5 % of the time", slow_rank(), 1.186, 1.190, (fires("ArgusStragglerRank", "page"),)),
    Boundary(
        "1.4 at once",
        slow_rank(),
        1.39,
        1.41,
        (record("rank:argus_phase_duration_seconds:fast_ratio"), fires("ArgusStragglerRank", "info")),
    ),
    Boundary(
        "1.4 at once, on the host", slow_rank("data", "host"), 1.39, 1.41, (fires("ArgusHostStall", "info"),)
    ),
    Boundary(
        "5 % of the time, on the host",
        slow_rank("data", "host"),
        1.186,
        1.190,
        (fires("ArgusHostStall", "page"),),
    ),
    Boundary("5 % of the stacks", pinning, 0.049, 0.051, (record("rank:argus_stack_frames:ratio"),)),
    Boundary(
        "two thirds of what is lost, in telling frames",
        pinning,
        4 / 15 / 1.5 - 0.001,
        4 / 15 / 1.5 + 0.001,
        (record("job:argus_stack_code:lost_ratio"),),
    ),
    Boundary(
        "cv 0.02",
        two_levels,
        0.0370,
        0.0385,
        (
            record("group:argus_phase_duration_seconds:max"),
            record("rank:argus_phase_duration_seconds:zscore"),
            record("rank:argus_phase_duration_seconds:median_ratio"),
        ),
    ),
    Boundary("4 ranks", of_ranks, 3, 4, (record("group:argus_phase_zscore_threshold:current"),)),
    Boundary(
        "2 ranks",
        of_ranks,
        1,
        2,
        (
            record("group:argus_phase_duration_seconds:stddev"),
            record("group:argus_phase_duration_seconds:cv"),
        ),
    ),
    Boundary(
        "3 spans in an interval",
        lambda spans: slow_rank(spans=spans)(2.0),
        2.9,
        3,
        (record("rank:argus_phase_duration_seconds:fast_slow"),),
    ),
    Boundary(
        "3 spans in two minutes",
        with_spans,
        0.38,
        0.37,
        (record("rank:argus_phase_duration_seconds:mean_long"),),
    ),
    Boundary(
        "6 spans in two minutes",
        with_spans,
        0.76,
        0.74,
        (
            record("group:argus_phase_spans:few"),
            record("rank:argus_phase_duration_seconds:long_sum"),
            record("rank:argus_phase_duration_seconds:long_count"),
        ),
    ),
    Boundary(
        "3 spans in half an hour", with_spans, 0.01, 0.38, (record("group:argus_phase_window:seconds"),)
    ),
    Boundary("half the lead", launching, 0.0101, 0.01, (record("rank:argus_issue_latency:low_ratio"),)),
    Boundary("two minutes gone", gone, 8, 7, (record("rank:argus_rank:left"),)),
    Boundary(
        "80 % of the group",
        missing,
        2,
        3,
        (
            record("group:argus_phase_coverage:low_ratio"),
            record("rank:argus_verdict:active", 'verdict="abstain"'),
        ),
    ),
    Boundary("less than 3 ranks", of_ranks, 3, 2, (record("group:argus_phase_ranks:few"),)),
    Boundary("half of the host's excess", held_up, 1.49, 1.51, (record("rank:argus_slow_host:lost_ratio"),)),
    Boundary(
        "2 % of the time, within",
        waiting_within,
        0.0745,
        0.0755,
        (record("rank:argus_phase_waiting:lost_ratio"),),
    ),
    Boundary(
        "0.5 % of the time",
        slow_rank(),
        1.0210,
        1.0216,
        (record("rank:argus_phase_excess:lost_ratio"), record("rank:argus_phase_duration_seconds:fast_slow")),
    ),
    Boundary(
        "2 % of the time, late",
        late,
        0.0745,
        0.0755,
        (
            record("rank:argus_collective_late:lost_ratio"),
            record("rank:argus_collective_waiting:lost_ratio"),
            record("rank:argus_collective_late:unexcused_lost_ratio"),
            fires("ArgusCollectiveLateRank", "ticket"),
        ),
    ),
    Boundary("5 % of the time, late", late, 0.187, 0.188, (fires("ArgusCollectiveLateRank", "page"),)),
    Boundary(
        "1.4 at once, late",
        late,
        0.142,
        0.144,
        (record("rank:argus_phase_striking:ratio"), fires("ArgusCollectiveLateRank", "info")),
    ),
    Boundary(
        "3 groups",
        lambda groups: linked(int(groups), 0.5),
        2,
        3,
        (record("group:argus_collective_transfer:ratio"),),
    ),
    Boundary(
        "1.5 of the peers",
        lambda seconds: linked(3, seconds),
        0.745,
        0.755,
        (
            record("rank:argus_collective_transfer:slow"),
            record("group:argus_collective_slow_link:lost_ratio"),
            record("rank:argus_collective_slow_link:lost_ratio"),
            record("rank:argus_pipeline_slow_link:lost_ratio"),
            fires("ArgusCollectiveSlowLink", "page"),
        ),
    ),
    Boundary("3 times the median", longest, 2.99, 3.01, (record("rank:argus_phase_spike:seconds"),)),
    Boundary(
        "1.5 times the shortest",
        last_slow,
        1.5,
        1.51,
        (
            record("job:argus_iteration:jitter_run_seconds"),
            record("job:argus_iteration:jitter_width_seconds"),
            record("job:argus_iteration:class", 'class="jitter"'),
            fires("ArgusIterationJitter", "info"),
        ),
    ),
    # Ten of forty evaluations, and three more until the alert has waited 45 seconds.
    Boundary("a quarter of ten minutes", slow_since, 12, 13, (fires("ArgusIterationJitter", "ticket"),)),
    Boundary(
        "5 % slower",
        step_change,
        1.0499,
        1.0501,
        (
            record("job:argus_iteration:regression_ratio"),
            record("job:argus_iteration:regression_split_timestamp_seconds"),
            record("job:argus_iteration:class", 'class="regression"'),
            record("job:argus_lost_gpus:current"),
            fires("ArgusIterationRegression", "page"),
        ),
    ),
    Boundary(
        "half of it by collectives",
        congested,
        0.499,
        0.501,
        (
            record("job:argus_collective_transfer:regression_ratio"),
            record("job:argus_lost_gpus:current", 'cause="fabric"'),
        ),
    ),
    Boundary(
        "a minute without an iteration",
        stalled,
        4,
        5,
        (
            record("job:argus_stalled:seconds"),
            record("rank:argus_stall_open:timestamp_seconds"),
            record("rank:argus_stall_sequence:collectives"),
            record("rank:argus_stall_lag:collectives"),
            record("rank:argus_stall_culprit:bool"),
            record("rank:argus_stall_victim:bool"),
            fires("ArgusTrainingStalled", "page"),
        ),
    ),
    Boundary("half of the ranks to blame", behind, 3, 4, (record("rank:argus_stall_suspect:bool"),)),
    Boundary("80 % in the collective", in_collective, 6, 7, (record("job:argus_stall_collective:bool"),)),
    Boundary(
        "2 % in collection",
        collecting,
        0.29,
        0.31,
        (
            record("rank:argus_host_pause:recent_seconds"),
            record("rank:argus_phase_suspect:lost_ratio", 'phase="gc"'),
        ),
    ),
    Boundary(
        "0.5 % in collection",
        collecting,
        0.074,
        0.076,
        (record("rank:argus_host_pause:lost_ratio"),),
    ),
    Boundary(
        "2 % in collection, in turn",
        in_turn,
        1.27,
        1.30,
        (record("job:argus_gc_unsynchronised:lost_ratio"), fires("ArgusHostStall", "ticket")),
    ),
    Boundary(
        "3 % slower kernels",
        lambda shift: kernel(shift, 0.3),
        0.03,
        0.031,
        (fires("ArgusKernelDegraded", "ticket"), fires("ArgusKernelGroupShift", "ticket")),
    ),
    Boundary(
        "50 % slower kernels",
        lambda shift: kernel(shift, 0.3),
        0.5,
        0.51,
        (fires("ArgusKernelDegraded", "info"),),
    ),
    Boundary(
        "1 % of the time in kernels",
        lambda share: kernel(0.2, share),
        0.059,
        0.061,
        (fires("ArgusKernelDegraded", "page"),),
    ),
    Boundary("two minutes lost", lost_since, 7, 8, (fires("ArgusRankMissing", "ticket"),)),
    Boundary(
        "five minutes without a channel", without_channel, 19, 20, (fires("ArgusChannelDown", "ticket"),)
    ),
    Boundary("1 % of the records", dropping, 10, 10.1, (fires("ArgusRecordsDropped", "ticket"),)),
    Boundary("1 % of a core", observing, 0.149, 0.151, (fires("ArgusOverheadBudget", "ticket"),)),
    Boundary("cv 0.05 and 5 % of the time", fan, 0.150, 0.158, (fires("ArgusGroupImbalance", "ticket"),)),
    Boundary("5 % of the time, uneven", fan, 0.124, 0.126, (fires("ArgusGroupImbalance", "info"),)),
    Boundary(
        "two minutes of training",
        resumed,
        8,
        7,
        (record("rank:argus_verdict:active", 'verdict="abstain"'),),
    ),
    Boundary(
        "cv 0.02 of the work",
        two_works,
        0.040,
        0.042,
        (
            record("rank:argus_work:rate"),
            record("rank:argus_phase_work:seconds"),
            record("rank:argus_phase_work:median_ratio"),
        ),
    ),
    Boundary(
        "0.5 % more work",
        overloaded,
        0.0049,
        0.0051,
        (record("rank:argus_work:excess_ratio", 'rank="1"'),),
    ),
    # The middle half by work is half as wide as by time at 0.0996.
    Boundary("half the spread", fitted, 0.0998, 0.0994, (record("group:argus_phase_work:fit"),)),
    Boundary("1.15 of the work", burdened, 1.149, 1.151, (record("rank:argus_work_imbalance:lost_ratio"),)),
    Boundary("1.15 of the stages", staged, 1.34, 1.37, (record("job:argus_stage_imbalance:ratio"),)),
    Boundary(
        "5 % slower than history",
        lambda factor: runs.slower(EIGHT, 8, factor),
        1.049,
        1.051,
        (
            record("job:argus_history:lost_ratio"),
            fires("ArgusIterationRegression", "ticket"),
        ),
    ),
    Boundary(
        "3 % slower than history",
        lambda factor: runs.slower(EIGHT, 8, factor),
        1.029,
        1.031,
        (record("job:argus_history:slowdown_ratio"),),
    ),
    Boundary(
        "5 % slower than history is healthy no more",
        lambda factor: runs.slower(EIGHT, 8, factor),
        1.051,
        1.049,
        (record("job:argus_signature:healthy"),),
    ),
    Boundary(
        "half as far ahead",
        lambda latency: runs.ahead(EIGHT, 8, latency),
        0.0201,
        0.02,
        (fires("ArgusIterationRegression", "info"),),
    ),
    Boundary(
        "beyond the first host",
        lowest,
        7,
        8,
        (
            record("rank:argus_rank_live:fallback"),
            record("rank:argus_rank:number"),
            record("job:argus_canonical_rank:number"),
        ),
    ),
)
