"""What counts as an anomaly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from argus_core.settings import constant, require_positive, setting

Method = Literal["modes", "w1-iqr", "eroica"]


@dataclass(frozen=True)
class JudgeConfig:
    """What counts as an anomaly. Effects are ratios: 0.1 is 10 % slower."""

    method: Method = setting(
        "modes",
        "what makes a verdict: w1-iqr is the ARGUS paper's fence of W1, eroica EROICA's distances with beta "
        "alone, as no series has the critical path; both are for comparison (docs/evidence/methods.md)",
    )
    alpha: float = constant(
        3.0, "Tukey's 'far out' of the fence Q3 + alpha (Q3 - Q1) of W1 scores; the paper leaves it open"
    )
    min_ranks: int = constant(
        4, "ranks of a role below which fence and deviations mean nothing: median ratio alone"
    )
    min_events: int = constant(20, "events of a mode below which its median is too uncertain to be compared")
    min_coverage: float = constant(
        0.5, "share of compute time that must be comparable, else the role is not judged"
    )
    deviations: float = constant(5.0, "robust deviations that a shift must exceed")
    kernel_effect: float = setting(0.10, "least shift of one kernel (or one of its modes) that is an anomaly")
    tail_effect: float = constant(0.5, "least shift of a mode's p99 that is an anomaly while its p50 is not")
    tail_share: float = constant(
        0.005, "least share of launches, above what is usual, that take far longer than their kernel's modes"
    )
    tail_windows: int = constant(
        12, "windows that persistence of these looks at: intermittent faults come in bursts"
    )
    workload_spread: float = constant(
        0.03,
        "least share by which the busiest tenth of a role's ranks runs its kernels more often than the least "
        "busy tenth, in the same steps: uneven work",
    )
    rank_effect: float = setting(0.04, "least time-weighted shift of all compute kernels that is an anomaly")
    own_effect: float = constant(
        0.035,
        "least change of all compute kernels against the GPU's own past that is an anomaly: above what "
        "temperature makes of an hour and a half; chosen on a simulated fleet (docs/evidence/shifts.md)",
    )
    censored_effect: float = constant(
        0.25,
        "a pair that most ranks do not publish: least excess over the most it can have taken there; launches "
        "cannot be compared, so more of them look like slower ones",
    )
    group_effect: float = setting(0.03, "least distance between two clusters of ranks that is a group shift")
    collective_group_effect: float = constant(
        0.25,
        "a collective: least excess of a process group's shortest durations over those of other groups; a "
        "choice, of which docs/evidence/links.md says what follows",
    )
    coordinates: tuple[str, ...] = setting(
        ("node", "rack", "dp", "tp", "ep", "edp"),
        "labels of argus_rank_info that may tell two clusters of ranks apart; edp is derived from dp and ep",
    )
    small_role_effect: float = constant(0.25, "least shift in roles of fewer than min_ranks ranks")
    min_share: float = constant(
        0.01,
        "kernels below this share of the rank's kernel time raise nothing; one that grows has a larger share",
    )
    min_duration_seconds: float = constant(
        50e-6,
        "kernels with a shorter mean duration raise nothing alone, only by their weight in the rank: healthy "
        "ranks differ most there (docs/evidence/real-traces.md)",
    )
    windows: int = constant(
        3, "windows that persistence looks at: a verdict comes after two, and one may err"
    )
    windows_needed: int = constant(2, "of these, windows that must agree: one alone may be chance")

    def __post_init__(self) -> None:
        require_positive(self, "kernel_effect", "rank_effect", "group_effect")


@dataclass(frozen=True)
class CrossCheckConfig:
    """Beside the verdicts: KAIR's execution rhythm and EROICA's patterns."""

    enabled: bool = setting(
        False,
        "publish argus_l3_rhythm_divergence and argus_l3_pattern_distance: in each cycle a range query over "
        "all launch counts, and what GPU time consists of; needs kernels, and dcgm-exporter adds to it",
    )
    window_seconds: float = constant(300.0, "time that it looks at: five cycles, and slices of 10 s")
    pattern_window_seconds: float = constant(
        1800.0, "time of EROICA's patterns: of 20 scrapes a deviation would differ by 16 % between equal GPUs"
    )
    slices: int = constant(
        30, "slices of it in which completions are counted: 10 s, so that most have a scrape"
    )
