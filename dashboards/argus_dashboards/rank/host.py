"""What the host does beside the GPU: stacks, garbage collection, compilation, launches."""

from __future__ import annotations

from typing import Final

from argus_dashboards import columns
from argus_dashboards.current import column
from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import lines, table
from argus_dashboards.promql import RANKS, RATE
from argus_dashboards.theme import BAD, COUNT, EXACT, FACT, GOOD, RATIO, SECONDS, steps

_FRAMES: Final = 12
_SAMPLES = f"argus_stack_samples_total{{{RANKS}}}"

_STACKS = lines(
    "What the threads do",
    f"""
    Stack samples a second by the function that runs, for the {_FRAMES} most frequent. A function that appears
    or grows when the job slows is the host's part in it: a loader that waits, a lock, a synchronisation.
    """,
    [
        (
            "{{thread}}: {{frame}}",
            f"topk({_FRAMES}, sum by (thread, frame) (rate({_SAMPLES}[{RATE}])))",
        )
    ],
    unit=COUNT,
    decimals=1,
    stacked=True,
    calcs=("lastNotNull", "mean"),
    empty="No stacks of this rank: see the channels below",
)
_TOP_FRAMES = table(
    "Functions by samples in this range",
    """
    The innermost functions of all threads. Much time in recv, read or decode: data. In item, synchronize or
    to: the host waits for the GPU by its own will. The whole stacks are in the trace.
    """,
    [f"topk(20, sum by (thread, frame) (increase({_SAMPLES}[$__range])))"],
    {"thread": "Thread", "frame": "Function", "Value": "Samples"},
    overrides=[columns.value("Samples", EXACT, steps(FACT), 100, 0), column("Thread", custom__width=130)],
    sort="Samples",
    empty="No stacks of this rank: see the channels below",
)
_GC = lines(
    "Garbage collection",
    """
    Share of time in Python's garbage collector by generation. Above 1 % it is worth a look, above 5 % it is
    a cause: freeze the heap, raise thresholds, or collect on all ranks at the same step.
    """,
    [
        (
            "generation {{generation}}",
            f"max by (generation) (rate(argus_gc_pause_seconds_sum{{{RANKS}}}[{RATE}]))",
        )
    ],
    unit=RATIO,
    limits=steps(GOOD, {BAD: 0.05}),
    empty="No collection was seen",
)
_JIT = lines(
    "Compilation",
    """
    Share of time in compilers on the host. Anything above 0 after the first steps: shapes change and kernels
    are compiled again; the other ranks wait meanwhile.
    """,
    [("{{compiler}}", f"max by (compiler) (rate(argus_compile_seconds_sum{{{RANKS}}}[{RATE}]))")],
    unit=RATIO,
    limits=steps(GOOD, {BAD: 0.05}),
    empty="Nothing was compiled",
)
_LATENCY = lines(
    "Issue latency of compute kernels",
    """
    Launch to start. A healthy host runs ahead, so kernels queue and this is long. When it falls towards 0 the
    queue runs dry: the host is the bottleneck.
    """,
    [
        (
            "p{{quantile}}",
            f'max by (quantile) (argus_issue_latency_seconds{{{RANKS}, kernel_class="compute"}})',
        )
    ],
    unit=SECONDS,
)
_VOIDS = lines(
    "GPU without a kernel",
    """
    Share of time in which no kernel runs: between steps (data, logging, checkpoints) and within them (late
    launches, waits). What rises here is lost, whatever the kernels do.
    """,
    [("{{void}}", f"max by (void) (rate(argus_void_seconds_total{{{RANKS}}}[{RATE}]))")],
    unit=RATIO,
)

SECTION: Final = Section(
    4,
    "Host",
    [
        Line(9, [(14, _STACKS), (10, _TOP_FRAMES)]),
        Line(7, [(6, _GC), (6, _JIT), (6, _LATENCY), (6, _VOIDS)]),
    ],
)
