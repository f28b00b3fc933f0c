"""A run against an earlier run of its model: what is learned of that, and which cause the later one gets."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rules.scenario import STORIES, Scenario

pytestmark = STORIES

SECONDS = 2
"""Between samples, as the quick rules of demos and tests evaluate the history."""
RUN = 60
"""Samples of each run."""
GAP = 3
VERDICT = 'max by (training_job, cause, team) (rank:argus_verdict:lost_ratio{verdict="culprit"}) ^ 0'
TOLD = f"{SECONDS * (RUN + GAP + 30)}s"
"""When the second run is old enough to be compared."""


@dataclass(frozen=True)
class RunProfile:
    """How a run goes. Shares are of wall time; the host waits for the GPU in the rest of its samples."""

    step_seconds: float = 0.1
    computing: float = 0.7
    idle: float = 0.0
    launch_ahead_seconds: float | None = 0.04
    synchronising: float = 0.2
    collective_seconds: float = 0.02
    receiving_seconds: float = 0.02
    sending_seconds: float = 0.02
    allocating: float | None = None
    """None: no sample ever met an allocation."""


def add(job: Scenario, name: str, model: str, first: int, profile: RunProfile) -> None:
    """A run of one rank that begins with sample `first`."""

    def series(metric: str, values: str, **labels: object) -> None:
        job.add(metric, (f"_x{first} " if first else "") + values + " stale", training_job=name, **labels)

    def counter(metric: str, a_second: float, **labels: object) -> None:
        series(metric, f"0+{a_second * SECONDS:.6g}x{RUN}", rank=0, **labels)

    steps = 1 / profile.step_seconds
    series("argus_job_info", f"1x{RUN}", model=model, backend="megatron", world_size=8)
    series("argus_rank_up", f"1x{RUN}", rank=0)
    counter("argus_iteration_duration_seconds_sum", 1.0)
    counter("argus_iteration_duration_seconds_count", steps)
    counter("argus_iteration_duration_seconds_squared_total", profile.step_seconds)
    kernel = {"kernel": "gemm", "stream": "compute0"}
    counter("argus_kernel_duration_seconds_total", profile.computing, **kernel)
    # Each launch takes as long as ever: fewer of them are there where less is computed.
    counter("argus_kernel_launches_total", 100 * profile.computing, **kernel)
    counter("argus_void_seconds_total", profile.idle, void="minority")
    counter("argus_void_seconds_total", 0.0, void="inter_step")
    stacks = {"thread": "MainThread"}
    counter(
        "argus_stack_samples_total", 10 * profile.synchronising, frame="synchronize (torch.cuda)", **stacks
    )
    counter("argus_stack_samples_total", 10 * (1 - profile.synchronising), frame="other", **stacks)
    if profile.allocating is not None:
        counter(
            "argus_stack_samples_total", 10 * profile.allocating, frame="cudaMalloc (allocator)", **stacks
        )
    if profile.launch_ahead_seconds is not None:
        series(
            "argus_issue_latency_seconds", f"{profile.launch_ahead_seconds}x{RUN}", rank=0,
            kernel_class="compute", quantile="0.5",
        )  # fmt: skip
    for transfer, group, seconds in (
        ("all_reduce", "dp:pp1", profile.collective_seconds),
        ("send_recv", "stage:pp1", profile.receiving_seconds),
        ("pp-send-grad", "stage:pp1", profile.sending_seconds),
    ):
        phase = {"phase": transfer, "kind": "comm", "group": group, "source": "kernel"}
        counter("argus_phase_duration_seconds_count", steps, **phase)
        counter("argus_phase_duration_seconds_sum", steps * seconds, **phase)


def runs(models: dict[str, tuple[RunProfile, RunProfile]]) -> Scenario:
    """Of each model an earlier and a later run, named `MODEL old` and `MODEL new`."""
    concerns = ("job", "phases", "verdicts", "history")
    job = Scenario(concerns, flavour="rules/test", interval=SECONDS, evaluation=SECONDS)
    for model, (earlier, later) in models.items():
        add(job, f"{model} old", model, 0, earlier)
        add(job, f"{model} new", model, RUN + GAP, later)
    return job


HALF_HIDDEN = RunProfile(step_seconds=0.12, computing=0.58)
"""A fifth slower; the kernels take as long, but transfers are no longer beside them."""
UNSEEN = RunProfile(launch_ahead_seconds=None)
"""Launches are not looked at (ARGUS_ISSUE_LATENCY is off)."""
CAUSES = {
    "the same": (RunProfile(), RunProfile(), ""),
    "transfers are not hidden": (RunProfile(), HALF_HIDDEN, "overlap-config infrastructure"),
    "transfers take longer": (
        RunProfile(),
        replace(HALF_HIDDEN, collective_seconds=0.04),
        "fabric-config operations",
    ),
    "transfers from stage to stage take longer": (
        RunProfile(),
        replace(HALF_HIDDEN, sending_seconds=0.04),
        "fabric-config operations",
    ),
    "transfers are not hidden, and stages wait for one another": (
        RunProfile(),
        replace(HALF_HIDDEN, receiving_seconds=0.04),
        "overlap-config infrastructure",
    ),
    "the host waits for a slower GPU": (
        RunProfile(),
        replace(HALF_HIDDEN, synchronising=0.4),
        "overlap-config infrastructure",
    ),
    "the host waits, and its launches no longer run ahead": (
        RunProfile(),
        replace(HALF_HIDDEN, synchronising=0.4, launch_ahead_seconds=0.001),
        "host-sync algorithm",
    ),
    "the host waits, and its launches are not seen": (
        UNSEEN,
        replace(HALF_HIDDEN, synchronising=0.4, launch_ahead_seconds=None),
        "host-sync algorithm",
    ),
    "memory is allocated, which no sample met before": (
        RunProfile(),
        replace(HALF_HIDDEN, idle=0.12, allocating=0.3),
        "host-alloc infrastructure",
    ),
    "the GPU idles": (RunProfile(), replace(HALF_HIDDEN, idle=0.12), "host-code algorithm"),
    "nothing else": (RunProfile(), RunProfile(step_seconds=0.12), "unexplained infrastructure"),
}
"""How the earlier and the later run go, and the cause and the team of the later."""


def test_the_cause_is_what_changed_with_the_speed() -> None:
    """All ranks alike are a fifth slower than in the earlier run; nothing is said of the first minutes."""
    job = runs({model: (earlier, later) for model, (earlier, later, _) in CAUSES.items()})
    found = {}
    for model, (_, _, words) in CAUSES.items():
        if words:
            cause, team = words.split()
            found[f'{{training_job="{model} new", cause="{cause}", team="{team}"}}'] = 1.0
    job.expect("job:argus_history:slowdown_ratio", f"{SECONDS * (RUN + GAP + 19)}s", {})
    job.expect(VERDICT, TOLD, found)
    unlearned = "|".join(sorted(f"{model} new" for model, (_, _, words) in CAUSES.items() if words))
    job.expect(f'job:argus_signature:healthy{{training_job=~"{unlearned}"}}', TOLD, {})
    job.run()


def test_a_rank_that_costs_little_keeps_nothing_from_being_learned() -> None:
    """The norm may be bent by less than what counts as slow: a twentieth."""
    job = runs({model: (RunProfile(), RunProfile()) for model in ("little", "much")})
    blamed = {"verdict": "culprit", "cause": "gpu-compute", "team": "operations", "level": "L3"}
    for model, lost in (("little", 0.04), ("much", 0.06)):
        job.add(
            "rank:argus_kernel_anomaly:lost_ratio",
            f"{lost}x{RUN}",
            training_job=f"{model} old",
            rank=7,
            **blamed,
        )
    learned = 'count by (model) (job:argus_signature:learned{signature="iteration"})'
    job.expect(learned, f"{SECONDS * RUN}s", {'{model="little"}': 1})
    job.run()


def test_pauses_at_steps_of_each_ranks_own_explain_a_slower_run() -> None:
    """A sixth of the time is lost; the cost of such pauses is known by a lower bound, a third of it."""
    job = runs(dict.fromkeys(("most", "some"), (RunProfile(), HALF_HIDDEN)))
    for model, lost in (("most", 0.06), ("some", 0.05)):
        values = f"_x{RUN + GAP} {lost}x{RUN} stale"
        job.add("job:argus_gc_unsynchronised:lost_ratio", values, training_job=f"{model} new", phase="gc")
    job.expect(
        VERDICT,
        TOLD,
        {
            '{training_job="most new", cause="host-gc", team="algorithm"}': 1,
            '{training_job="some new", cause="host-gc", team="algorithm"}': 1,
            '{training_job="some new", cause="overlap-config", team="infrastructure"}': 1,
        },
    )
    job.run()
