"""A run against an earlier run of its model: what is learned of that, and which cause the later one gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from rules.beside import play
from rules.promtool import complaints, needs_promtool, rules_of

pytestmark = [needs_promtool, pytest.mark.beside_others]

RULES = Path(__file__).resolve().parents[2] / "rules"
FILES = ("job", "phases", "evidence", "regression", "history", "decision")
"""In the order in which their rules read one another."""
STEP_S = 15
"""Between samples, and between evaluations where those that decide are not counted."""
DECISIONS_S = 5
"""As those come: what explains a slower run must last."""
RUN = 86
"""Samples of each run: it is old enough after 12 minutes, and 30 recordings later it is known."""
GAP = 3
TOLD = f"{STEP_S * (RUN + GAP + 60)}s"
"""When the second run is old enough to be compared, and to be learned from."""
EARLY = f"{STEP_S * (RUN + GAP + 38)}s"
"""Before its means are full."""
STANDING = "max by (training_job, cause, team, most) (rank:argus_verdict:lost_ratio) ^ 0"
"""What nothing excuses; `most` is the highest severity that it may have."""


@dataclass(frozen=True)
class Kernel:
    """One kernel of a rank: its share of wall time, and seconds of a launch in milliseconds."""

    share: float
    milliseconds: float = 1.0


GEMM = {"gemm": Kernel(0.6), "norm": Kernel(0.1)}


@dataclass(frozen=True)
class RunProfile:
    """How a run goes. Shares are of wall time; the host waits for the GPU in the rest of its samples."""

    step_seconds: float = 0.5
    tokens_a_step: float | None = None
    kernels: Mapping[str, Kernel] = field(default_factory=lambda: GEMM)
    idle: float = 0.0
    idle_between_steps: float = 0.0
    launch_ahead_seconds: float | None = 0.04
    collective_seconds: float = 0.1
    receiving_seconds: float = 0.1
    sending_seconds: float = 0.1
    data_seconds: float = 0.02
    wire_seconds_a_byte: float | None = None
    """Of its hops between hosts, where NCCL's plugin and its rules are on."""
    phases: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    """More of them: kind, and seconds of a span."""
    frames: Mapping[str, float] = field(
        default_factory=lambda: {"synchronize (torch.cuda)": 0.2, "forward (model)": 0.8}
    )
    """Shares of the samples of the main thread."""


@dataclass
class Runs:
    """Input series of runs, and what the rules must say of them."""

    evaluation_s: int = STEP_S
    inputs: list[dict[str, str]] = field(default_factory=list)
    expectations: list[dict[str, Any]] = field(default_factory=list)

    def model(self, name: str, earlier: RunProfile, later: RunProfile, **of_earlier: object) -> None:
        """An earlier run `old` and a later one `new`."""
        self.run(f"{name} old", name, 0, earlier, **of_earlier)
        self.run(f"{name} new", name, RUN + GAP, later)

    def run(self, job: str, model: str, first: int, profile: RunProfile, **info: object) -> None:
        """A run of one rank that begins with sample `first`."""

        def series(metric: str, values: str, **labels: object) -> None:
            self.add(metric, (f"_x{first} " if first else "") + values + " stale", training_job=job, **labels)

        def counter(metric: str, a_second: float, **labels: object) -> None:
            series(metric, f"0+{a_second * STEP_S:.6g}x{RUN}", rank=0, **labels)

        steps = 1 / profile.step_seconds
        series(
            "argus_job_info", f"1x{RUN}", **{"model": model, "backend": "megatron", "world_size": 8} | info
        )
        series("argus_rank_up", f"1x{RUN}", rank=0)
        series("argus_rank_lead_number", f"0x{RUN}", rank=0)
        counter("argus_iteration_duration_seconds_sum", 1.0)
        counter("argus_iteration_duration_seconds_count", steps)
        counter("argus_iteration_duration_seconds_squared_total", profile.step_seconds)
        series("argus_iteration_window_max_seconds", f"{profile.step_seconds}x{RUN}", rank=0)
        series("argus_iteration_window_min_seconds", f"{profile.step_seconds}x{RUN}", rank=0)
        if profile.tokens_a_step is not None:
            counter("argus_work_units_total", steps * profile.tokens_a_step, unit="tokens")
        for name, kernel in profile.kernels.items():
            counter("argus_kernel_duration_seconds_total", kernel.share, kernel=name, stream="compute0")
            launches = 1000 * kernel.share / kernel.milliseconds
            counter("argus_kernel_launches_total", launches, kernel=name, stream="compute0")
        if profile.kernels:
            counter("argus_void_seconds_total", profile.idle, void="minority")
            counter("argus_void_seconds_total", profile.idle_between_steps, void="inter_step")
        for frame, share in profile.frames.items():
            counter("argus_stack_samples_total", 10 * share, frame=frame, thread="MainThread")
        if profile.wire_seconds_a_byte is not None:
            for peer, factor in enumerate((1.0, 1.0, 3.0)):
                value = profile.wire_seconds_a_byte * factor
                series("rank:argus_network_wire:seconds_per_byte", f"{value}x{RUN}", rank=0, peer=peer)
        if profile.launch_ahead_seconds is not None:
            series(
                "argus_issue_latency_seconds", f"{profile.launch_ahead_seconds}x{RUN}", rank=0,
                kernel_class="compute", quantile="0.5",
            )  # fmt: skip
        for phase, kind, group, seconds in (
            ("all_reduce", "comm", "dp:pp1", profile.collective_seconds),
            ("send_recv", "comm", "stage:pp1", profile.receiving_seconds),
            ("pp-send-grad", "comm", "stage:pp1", profile.sending_seconds),
            ("data", "host", "dp:pp1", profile.data_seconds),
            *((phase, kind, "dp:pp1", seconds) for phase, (kind, seconds) in profile.phases.items()),
        ):
            labels = {"phase": phase, "kind": kind, "group": group, "source": "event"}
            counter("argus_phase_duration_seconds_count", steps, **labels)
            counter("argus_phase_duration_seconds_sum", steps * seconds, **labels)

    def add(self, metric: str, values: str, **labels: object) -> None:
        pairs = ", ".join(f'{name}="{value}"' for name, value in labels.items())
        self.inputs.append({"series": f"{metric}{{{pairs}}}", "values": values})

    def expect(self, expression: str, at: str, samples: dict[str, float]) -> None:
        listed = [{"labels": labels, "value": value} for labels, value in samples.items()]
        self.expectations.append({"expr": expression, "eval_time": at, "exp_samples": listed})

    def play(self) -> None:
        rules = rules_of(RULES / f"argus.{name}.rules.yaml" for name in FILES)
        test = {
            "interval": f"{STEP_S}s",
            "input_series": self.inputs,
            "promql_expr_test": self.expectations,
        }
        play({**rules, "evaluation_interval": f"{self.evaluation_s}s", "tests": [test]})


def frames(**shares: float) -> Mapping[str, float]:
    """Of samples: those of the waits for the GPU, and of frames by a name; the rest is in the model."""
    known = {
        "waiting": "synchronize (torch.cuda)",
        "allocating": "cudaMalloc (allocator)",
        "loading": "_SingleProcessDataLoaderIter._next_data (torch.utils.data.dataloader)",
        "checking": "version (importlib.metadata)",
    }
    found = {known[name]: share for name, share in shares.items()}
    return found | {"forward (model)": 1 - sum(shares.values())}


SLOWER = RunProfile(
    step_seconds=0.6,
    kernels={"gemm": Kernel(0.5), "norm": Kernel(0.0833)},
    collective_seconds=0.1,
    frames=frames(waiting=0.2),
)
"""A fifth slower; the kernels take as long, but transfers are no longer beside them."""
UNSEEN = RunProfile(launch_ahead_seconds=None)
"""Launches are not looked at (ARGUS_ISSUE_LATENCY is off)."""
HOOKS = RunProfile(
    kernels={},
    launch_ahead_seconds=None,
    frames=frames(waiting=0.2),
    phases={
        "forward": ("compute", 0.1),
        "backward": ("compute", 0.2),
        "optimizer": ("compute", 0.05),
        "all_gather_single": ("comm", 0.05),
        "dp-unshard-wait": ("comm", 0.02),
    },
)
"""A run of which hooks alone tell, by FSDP2."""


def longer(factor: float, *phases: str) -> RunProfile:
    """The same at steps of 0.6 s, whose phases take so many times longer."""
    times = {phase: factor if phase in phases else 1.0 for phase in HOOKS.phases}
    return replace(
        HOOKS,
        step_seconds=0.6,
        phases={phase: (kind, times[phase] * seconds) for phase, (kind, seconds) in HOOKS.phases.items()},
    )


CAUSES: Mapping[str, tuple[RunProfile, RunProfile, str]] = {
    "the same": (RunProfile(), RunProfile(), ""),
    "a fiftieth slower": (RunProfile(), RunProfile(step_seconds=0.51), ""),
    "every kernel is slower": (
        RunProfile(),
        RunProfile(step_seconds=0.6, kernels={"gemm": Kernel(0.6, 1.2), "norm": Kernel(0.1, 1.2)}),
        "colocation infrastructure",
    ),
    "one kernel is slower": (
        RunProfile(kernels=GEMM | {"loss": Kernel(0.05), "embed": Kernel(0.05)}),
        RunProfile(
            step_seconds=0.6,
            kernels={"gemm": Kernel(0.6, 1.2)}
            | {name: Kernel(0.04) for name in ("loss", "embed")}
            | {"norm": Kernel(0.08)},
        ),
        "kernel-shape infrastructure",
    ),
    "kernels that nobody had": (
        RunProfile(),
        RunProfile(step_seconds=0.6, kernels=SLOWER.kernels | {"tiny": Kernel(0.16, 0.01)}),
        "kernel-inefficient infrastructure",
    ),
    "transfers are not hidden": (RunProfile(), SLOWER, "overlap-config infrastructure"),
    "transfers take longer": (
        RunProfile(),
        replace(SLOWER, collective_seconds=0.2),
        "fabric-config operations",
    ),
    "transfers from stage to stage take longer": (
        RunProfile(),
        replace(SLOWER, sending_seconds=0.2),
        "fabric-config operations",
    ),
    "transfers are not hidden, and stages wait for one another": (
        RunProfile(),
        replace(SLOWER, receiving_seconds=0.2),
        "overlap-config infrastructure",
    ),
    "the host waits for a slower GPU": (
        RunProfile(),
        replace(SLOWER, frames=frames(waiting=0.4)),
        "overlap-config infrastructure",
    ),
    "the host waits, and its launches no longer run ahead": (
        RunProfile(),
        replace(SLOWER, frames=frames(waiting=0.4), launch_ahead_seconds=0.001),
        "host-sync algorithm",
    ),
    "launches no longer run ahead": (
        RunProfile(),
        replace(SLOWER, launch_ahead_seconds=0.001),
        "host-sync algorithm",
    ),
    "the host waits, and its launches are not seen": (
        UNSEEN,
        replace(SLOWER, frames=frames(waiting=0.4), launch_ahead_seconds=None),
        "host-sync algorithm",
    ),
    "the host waits for longer transfers, and its launches are not seen": (
        UNSEEN,
        replace(SLOWER, collective_seconds=0.2, frames=frames(waiting=0.4), launch_ahead_seconds=None),
        "fabric-config operations",
    ),
    "transfers take four times as long, and some code is met a little more often": (
        UNSEEN,
        RunProfile(
            step_seconds=1.0,
            collective_seconds=0.6,
            frames=frames(waiting=0.2, checking=0.08),
            launch_ahead_seconds=None,
        ),
        "fabric-config operations",
    ),
    "memory is allocated, which no sample met before": (
        RunProfile(),
        replace(SLOWER, idle=0.12, frames=frames(waiting=0.2, allocating=0.3)),
        "host-alloc infrastructure",
    ),
    "the GPU idles": (RunProfile(), replace(SLOWER, idle=0.12), "host-code algorithm"),
    "code that no sample met before": (
        UNSEEN,
        replace(SLOWER, frames=frames(waiting=0.2, checking=0.3), launch_ahead_seconds=None),
        "host-code algorithm",
    ),
    "the GPU idles between steps": (
        RunProfile(),
        replace(SLOWER, idle_between_steps=0.12),
        "data-input algorithm",
    ),
    "the loader takes longer": (RunProfile(), replace(SLOWER, data_seconds=0.12), "data-input algorithm"),
    "the main thread loads": (
        RunProfile(),
        replace(SLOWER, frames=frames(waiting=0.2, loading=0.3)),
        "data-input algorithm",
    ),
    "what is sent is longer on the wire": (
        RunProfile(wire_seconds_a_byte=4e-11),
        RunProfile(step_seconds=0.6, wire_seconds_a_byte=8e-11),
        "fabric-config operations",
    ),
    "what is sent is hardly longer on the wire": (
        RunProfile(wire_seconds_a_byte=4e-11),
        RunProfile(step_seconds=0.6, wire_seconds_a_byte=5e-11),
        "unexplained infrastructure",
    ),
    "on the wire twice as long, at no cost": (
        RunProfile(wire_seconds_a_byte=4e-11),
        RunProfile(wire_seconds_a_byte=8e-11),
        "",
    ),
    "nobody knew the wire": (
        RunProfile(),
        RunProfile(step_seconds=0.6, wire_seconds_a_byte=8e-11),
        "unexplained infrastructure",
    ),
    "nothing else": (RunProfile(), RunProfile(step_seconds=0.6), "unexplained infrastructure"),
    "as slow as it has more to do": (
        RunProfile(tokens_a_step=1000),
        RunProfile(step_seconds=0.6, tokens_a_step=1200),
        "",
    ),
    "every phase of computation is slower": (
        HOOKS,
        longer(1.3, "forward", "backward", "optimizer"),
        "colocation infrastructure",
    ),
    "some phases of computation are slower": (
        HOOKS,
        longer(1.3, "forward", "backward"),
        "unexplained infrastructure",
    ),
    "every phase of computation is slower, and the host has more to do": (
        HOOKS,
        replace(longer(1.3, "forward", "backward", "optimizer"), frames=frames(waiting=0.1, checking=0.15)),
        "host-code algorithm",
    ),
    "gathers take as long, and are waited for longer": (
        HOOKS,
        longer(3, "dp-unshard-wait"),
        "overlap-config infrastructure",
    ),
    "gathers take longer, and are waited for longer": (
        HOOKS,
        longer(3, "dp-unshard-wait", "all_gather_single"),
        "fabric-config operations",
    ),
    "slower, with as much to do": (
        RunProfile(tokens_a_step=1000, kernels={}),
        RunProfile(step_seconds=0.6, tokens_a_step=1000, kernels={}),
        "unexplained infrastructure",
    ),
}
"""How the earlier and the later run go, and the cause and the team of the later."""


@pytest.mark.parametrize("what", CAUSES)
def test_the_cause_is_what_changed_with_the_speed(what: str) -> None:
    """All ranks alike are a fifth slower than in the earlier run: a ticket, but not in the first minutes."""
    earlier, later, words = CAUSES[what]
    runs = Runs()
    runs.model("m", earlier, later)
    runs.expect("job:argus_history:slowdown_ratio", EARLY, {})
    runs.expect("rank:argus_verdict:lost_ratio", EARLY, {})
    found = {}
    if words:
        cause, team = words.split()
        labels = f'training_job="m new", cause="{cause}", team="{team}", most="ticket"'
        found = {f"{{{labels}}}": 1.0}
    runs.expect(STANDING, TOLD, found)
    # What is slow is not learned.
    learned = {} if words else {"{}": 1.0}
    runs.expect(
        'count(job:argus_signature:healthy{training_job="m new", signature="iteration"})', TOLD, learned
    )
    runs.play()


@pytest.mark.parametrize(("lost", "learned"), [(0.04, {"{}": 1.0}), (0.06, {})])
def test_a_rank_that_costs_little_keeps_nothing_from_being_learned(
    lost: float, learned: dict[str, float]
) -> None:
    """The norm may be bent by less than what counts as slow: a twentieth."""
    runs = Runs()
    runs.run("m", "m", 0, RunProfile())
    evidence = {"cause": "gpu-compute", "detector": "test", "rank": 0, "phase": "forward", "group": "dp"}
    runs.add("rank:argus_evidence:lost_ratio", f"{lost}x{RUN}", training_job="m", **evidence)
    at = f"{STEP_S * RUN}s"
    runs.expect('count(job:argus_signature:learned{signature="iteration"})', at, learned)
    runs.play()


def test_a_run_of_another_size_is_not_compared() -> None:
    runs = Runs()
    runs.model("m", RunProfile(), SLOWER, world_size=16)
    runs.expect("job:argus_history:slowdown_ratio", TOLD, {})
    runs.play()


@pytest.mark.parametrize(
    ("lost", "found"),
    [(0.06, {'{cause="host-gc"}': 1.0}), (0.05, {'{cause="host-gc"}': 1.0, '{cause="overlap-config"}': 1.0})],
)
def test_pauses_at_steps_of_each_ranks_own_explain_a_slower_run(lost: float, found: dict[str, float]) -> None:
    """A sixth of the time is lost; the cost of such pauses is known by a lower bound, a third of it."""
    runs = Runs(evaluation_s=DECISIONS_S)
    runs.model("m", RunProfile(), SLOWER)
    pauses = {"cause": "host-gc", "detector": "test", "phase": "all"}
    values = f"_x{RUN + GAP} {lost}x{RUN} stale"
    runs.add("rank:argus_evidence:lost_ratio", values, training_job="m new", **pauses)
    runs.expect("max by (cause) (rank:argus_verdict:lost_ratio) ^ 0", TOLD, found)
    runs.play()


def test_a_regression_within_the_run_is_told_as_that() -> None:
    """At once, as a page: what the history knows of it is excused, and stands in the text of that."""
    runs = Runs()
    runs.model("m", RunProfile(), SLOWER)
    evidence = {"cause": "regression", "detector": "change"}
    values = f"_x{RUN + GAP + 40} 0.15x{RUN - 40} stale"
    runs.add("rank:argus_evidence:lost_ratio", values, training_job="m new", **evidence)
    runs.expect("max by (cause, most) (rank:argus_verdict:lost_ratio) ^ 0", TOLD, {
        '{cause="unexplained", most="page"}': 1
    })  # fmt: skip
    known = 'rank:argus_exclusion:lost_ratio{cause="history"}'
    runs.expect(f"max by (by, at) ({known}) ^ 0", TOLD, {'{by="regression", at="job"}': 1})
    runs.play()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_slow_rank_explains_a_slower_run(rank: int) -> None:
    runs = Runs(evaluation_s=DECISIONS_S)
    runs.model("m", RunProfile(), SLOWER)
    evidence = {"cause": "gpu-compute", "detector": "test", "rank": rank, "phase": "forward", "group": "dp"}
    values = f"_x{RUN + GAP} 0.15x{RUN} stale"
    runs.add("rank:argus_evidence:lost_ratio", values, training_job="m new", **evidence)
    runs.expect("max by (cause, rank) (rank:argus_verdict:lost_ratio) ^ 0", TOLD, {
        f'{{cause="gpu-compute", rank="{rank}"}}': 1
    })  # fmt: skip
    runs.play()


def test_the_first_iterations_after_a_restart_are_no_slowdown() -> None:
    """They take three times as long for two minutes, and are in the means for seven."""
    runs = Runs()
    runs.run("m old", "m", 0, RunProfile())
    before, slow, after = f"_x{RUN + GAP}", 8, 30
    who = {"training_job": "m new", "rank": 0}
    info = {"model": "m", "backend": "megatron", "world_size": 8}
    runs.add("argus_job_info", f"{before} 1x{RUN}", training_job="m new", **info)
    for metric, values in (
        ("argus_rank_up", f"1x{RUN}"),
        ("argus_rank_lead_number", f"0x{RUN}"),
        ("argus_iteration_duration_seconds_sum", f"0+15x45 0+15x{slow + after}"),
        ("argus_iteration_duration_seconds_count", f"0+30x45 0+10x{slow} {10 * (slow + 3)}+30x{after}"),
        ("argus_iteration_duration_seconds_squared_total", f"0+7.5x45 0+22.5x{slow + after}"),
        ("argus_iteration_window_max_seconds", f"0.5x45 1.5x{slow} 0.5x{after}"),
        ("argus_iteration_window_min_seconds", f"0.5x45 1.5x{slow} 0.5x{after}"),
    ):
        runs.add(metric, f"{before} {values}", **who)
    slowed = 'max(job:argus_signature:history_ratio{signature="iteration"}) > bool 1.05'
    for sample, is_slow in ((40, 0), (55, 1), (65, 1), (80, 0)):
        at = f"{STEP_S * (RUN + GAP + sample)}s"
        runs.expect(slowed, at, {"{}": is_slow})
        runs.expect("job:argus_history:slowdown_ratio", at, {})
    runs.play()


def test_the_page_of_a_regression_says_what_the_history_knows() -> None:
    """Of what moved the first alone; promtool shows the alert, as it is told that there is none."""
    runs = Runs()
    samples, job = 60, {"training_job": "m"}
    runs.add("argus_rank_up", f"1x{samples}", rank=0, **job)
    evidence = {
        "regression": "change",
        "history-fabric-config": "history",
        "history-overlap-config": "history",
        "history-unexplained": "history",
    }
    for cause, detector in evidence.items():
        series = {"cause": cause, "detector": detector}
        runs.add("rank:argus_evidence:lost_ratio", f"0.2x{samples}", **series, **job)
    asked = {"eval_time": "4m", "alertname": "ArgusIterationRegression", "exp_alerts": []}
    test = {"interval": "5s", "input_series": runs.inputs, "alert_rule_test": [asked]}
    rules = rules_of(RULES / f"argus.{name}.rules.yaml" for name in ("job", "history", "decision"))
    said = complaints({**rules, "evaluation_interval": "5s", "tests": [test]})
    assert 'cause="unexplained"' in said
    assert "It also waits longer for its collectives than earlier runs of its model: they are slower" in said
    assert said.count("It also") == 1
