"""The kernels of the rank: their modes over time, and how they differ from those of its role."""

from __future__ import annotations

from typing import Final

from argus_dashboards import columns
from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import lines, table
from argus_dashboards.promql import RANKS, RATE, with_kernel_name
from argus_dashboards.theme import BYTES_A_SECOND, COUNT, FACT, RATIO, SECONDS, steps

_SHOWN: Final = 8
_PAIRS: Final = 30
_SPENT = f"argus_kernel_duration_seconds_total{{{RANKS}}}"
# Those of the end: a choice made anew at each point would tear the bands.
_TOP = f"and on (kernel, stream) topk({_SHOWN}, max by (kernel, stream) (rate({_SPENT}[{RATE}] @ end())))"


def _modes(quantile: str, title: str, text: str) -> object:
    return lines(
        title,
        f"""
        One point a window and mode, for the {_SHOWN} kernels that take most time, on a logarithmic axis.
        {text} Several bands of one kernel are its modes: other shapes, or other neighbours on the GPU.
        """,
        [
            (
                "{{kernel}} {{stream}} mode {{mode}}",
                f"max by (kernel, stream, mode) (argus_kernel_mode_{quantile}_seconds{{{RANKS}}}) {_TOP}",
            )
        ],
        unit=SECONDS,
        points=True,
        calcs=("lastNotNull",),
        empty="No kernels of this rank: see the channels below",
    )


_P50 = _modes(
    "p50", "Typical duration of each mode (p50)", "A band that steps up is a kernel that got slower."
)
_P99 = _modes("p99", "Slow end of each mode (p99)", "It rises before p50 where only some launches are slow.")

_SHARES = f"max by (kernel, stream) (rate({_SPENT}[{RATE}]))"
_BY = "kernel, stream"
_TABLE = table(
    "Kernels of this rank",
    f"""
    The {_PAIRS} pairs of kernel and stream with the most time. Shift is against the ranks of the same role: a
    large shift of a kernel with a small share does not matter. All kernels shifted alike: the GPU is slow.
    Kernels without an anomaly show no shift.
    Click a kernel to see it on all ranks.
    """,
    [
        with_kernel_name(f"topk({_PAIRS}, {_SHARES})"),
        f"max by ({_BY}) (rate(argus_kernel_launches_total{{{RANKS}}}[{RATE}]))",
        f"max by ({_BY}) (argus_kernel_mode_p50_seconds{{{RANKS}}})",
        f"max by ({_BY}) (argus_kernel_mode_p99_seconds{{{RANKS}}})",
        f"max by ({_BY}) (argus_l3_kernel_shift_ratio{{{RANKS}}})",
    ],
    {
        "kernel": "Kernel",
        "stream": "Stream",
        "name": "Name",
        "Value #A": "Share of time",
        "Value #B": "Launches/s",
        "Value #C": "p50",
        "Value #D": "p99",
        "Value #E": columns.SHIFT,
    },
    overrides=[
        columns.KERNEL,
        columns.STREAM,
        columns.value("Share of time", RATIO, steps(FACT), 110),
        columns.value("Launches/s", COUNT, steps(FACT), 100),
        columns.value("p50", SECONDS, steps(FACT), 90),
        columns.value("p99", SECONDS, steps(FACT), 90),
        columns.SHIFT_RATIO,
    ],
    sort="Share of time",
    empty="No kernels of this rank: see the channels below",
)
_COVERAGE = lines(
    "What the published kernels cover",
    """
    Share of kernel time that these pairs have, and the largest that one left out may have. A coverage that
    falls means more different kernels, such as changing shapes; the rest is in the trace.
    """,
    [
        ("covered", f"max(argus_kernel_coverage_ratio{{{RANKS}}})"),
        ("cutoff", f"max(argus_kernel_cutoff_ratio{{{RANKS}}})"),
    ],
    unit=RATIO,
)
_TAIL = lines(
    "Events outside every mode",
    """
    Launches that fit no mode of their kernel, a window, for the kernels with most of them. A sudden rise:
    something interrupts the GPU now and then, such as another process, heat or memory errors.
    """,
    [
        (
            "{{kernel}} {{stream}}",
            f"topk({_SHOWN}, max by (kernel, stream) (argus_kernel_tail_events{{{RANKS}}}))",
        )
    ],
    unit=COUNT,
)

_BANDWIDTH = lines(
    "Bus bandwidth of collectives",
    """
    What the rank passes on for collectives, by the time of their kernels: by group and by the most that one
    takes. Waiting for a late member counts, so compare with the member of the group that has the highest.
    """,
    [
        (
            "{{group}} {{size}}",
            f"max by (group, size) (rate(argus_nccl_bus_bytes_total{{{RANKS}}}[{RATE}])"
            f"\n/ rate(argus_nccl_bus_seconds_total{{{RANKS}}}[{RATE}]))",
        )
    ],
    unit=BYTES_A_SECOND,
    empty="Nothing without NCCL's plugin: ARGUS_NCCL",
)

SECTION: Final = Section(
    3,
    "Kernels",
    [
        Line(10, [(12, _P50), (12, _P99)]),
        Line(10, [(24, _TABLE)]),
        Line(7, [(8, _COVERAGE), (8, _TAIL), (8, _BANDWIDTH)]),
    ],
)
