"""What can be wrong in a simulated job: mechanisms with onset, duty cycle and magnitude.

A fault says what happens and to whom, never what it is called in a verdict: that is `truth.py`. A fault of no
magnitude (factor 1, 0 seconds) is health.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from argus_core.settings import setting

Mechanism = Literal[
    "kernels", "link", "pause", "launch", "data", "sync", "work", "count", "late", "serial", "extra-kernels",
    "hang", "activity", "unscraped", "leave", "join", "restart", "clock", "channel",
]  # fmt: skip
MECHANISMS: Final[tuple[Mechanism, ...]] = get_args(Mechanism)

MEANING: Final[dict[Mechanism, str]] = {
    "kernels": "kernels take `factor` times as long",
    "link": "transfers of the process groups that hold one of the ranks take `factor` times as long",
    "pause": "the launching thread stands still for `seconds`, once an active step",
    "launch": "each launch costs the host `factor` times as much",
    "data": "the wait for a batch takes `seconds` longer",
    "sync": "the host waits for the device after each block, and for `seconds` beyond",
    "work": "kernels have `factor` times as much to do, as the work units tell",
    "count": "up to `scatter` of the kernels of a step are not there",
    "late": "operations start `seconds` late in all, and take as long as ever",
    "serial": "gradients travel after the backward pass instead of beside it",
    "extra-kernels": "many small kernels in every layer, `share` of its time",
    "hang": "the first operation of `phases` never ends (`data`: the batch never comes)",
    "activity": "warm-up, checkpoint or evaluation: kernels `factor` times as long, `seconds` after the step",
    "unscraped": "nothing in the job: who runs the stack keeps Prometheus from the exporter",
    "leave": "the producers of the ranks are gone without a BYE, their training goes on",
    "join": "the producers of the ranks appear `seconds` after the start",
    "restart": "the job ends and is back after `seconds`, with `dp` replicas, its counters anew",
    "clock": "the clocks of the ranks' hosts jump by `seconds` at the onset",
    "channel": "a channel is lost, for `reason`",
}

Dimension = Literal["", "tp", "dp", "pp", "ep", "edp", "world"]
PauseKind = Literal["silent", "gc", "compile"]
ActivityName = Literal["warmup", "checkpoint", "evaluation", "compile", "train"]

_DUTY: Final = frozenset(
    (
        "mechanism",
        "ranks",
        "where",
        "onset_step",
        "end_step",
        "period_steps",
        "active_steps",
        "chance",
        "counters",
    )
)
KEYS: Final[dict[str, frozenset[str]]] = {
    "kernels": frozenset(("factor", "kernels", "phases", "share", "scatter")),
    "link": frozenset(("factor", "dimension", "phases", "inward")),
    "pause": frozenset(("seconds", "kind", "phases", "position", "staggered", "scatter", "frames")),
    "launch": frozenset(("factor", "phases", "frames")),
    "data": frozenset(("seconds", "scatter", "frames")),
    "sync": frozenset(("seconds", "phases", "frames")),
    "work": frozenset(("factor", "scatter", "kernels", "drift_steps", "by", "unit")),
    "count": frozenset(("scatter", "kernels", "unit")),
    "late": frozenset(("seconds", "phases")),
    "serial": frozenset(),
    "extra-kernels": frozenset(("share",)),
    "hang": frozenset(("phases", "frames", "inward")),
    "activity": frozenset(("activity", "tagged", "seconds", "factor")),
    "unscraped": frozenset(),
    "leave": frozenset(),
    "join": frozenset(("seconds",)),
    "restart": frozenset(("dp", "seconds")),
    "clock": frozenset(("seconds",)),
    "channel": frozenset(("channel", "reason")),
}
"""Keys that a mechanism understands, beside those of the duty cycle."""


Counters = Literal["", "thermal", "power-brake", "xid-63", "xid-79"]


@dataclass(frozen=True)
class Fault:
    """One fault of a scenario. Once loaded, `ranks` holds the ranks that `where` chose."""

    mechanism: Mechanism | None = setting(None, "what happens; each mechanism has its own keys")
    ranks: tuple[int, ...] = setting((), "ranks that it happens to; or `where`")
    where: str = setting("", "ranks by topology, chosen by the seed: see docs/scenarios.md")
    factor: float = setting(1.0, "how many times as long, or as much (work); 1: healthy")
    seconds: float = setting(0.0, "how much longer, or how far off; 0: healthy")
    kernels: str = setting("*", "glob on full kernel names")
    phases: str = setting("*", "glob on phases, such as *-backward, mlp-* or edp-*")
    inward: bool = setting(
        False, "link, and hang of a collective: it is what the ranks' hosts receive, not what they send; the "
        "seed chooses with `where`"
    )  # fmt: skip
    dimension: Dimension = setting("", "link: process groups along this dimension; empty: all")
    share: float = setting(1.0, "kernels: share of them that is hit; extra-kernels: added share of GPU time")
    scatter: float = setting(0.0, "log deviation of the magnitude from one hit to the next; 0: constant")
    kind: PauseKind = setting("silent", "pause: what it leaves in the records")
    position: float = setting(0.5, "pause: before which launch in `phases`, 0 to 1; below 0: random")
    staggered: bool = setting(False, "pause: each rank has its own step of the period")
    drift_steps: int = setting(0, "work: who has how much changes over so many steps; 0: constant")
    by: Literal["rank", "replica", "microbatch", "pool"] = setting(
        "rank", "work: what shares one amount: a rank, a replica, or each microbatch of it; `pool`: as "
        "rank, with a constant sum in each ep group"
    )  # fmt: skip
    unit: str = setting("", "work, count: name of the work units that report it; empty: not reported")
    activity: ActivityName = setting("checkpoint", "activity: what the ranks do")
    tagged: bool = setting(True, "activity: whether the producer says so")
    dp: int = setting(0, "restart: data-parallel size from then on; 0: as before")
    channel: Literal["phases", "kernels", "stacks"] = setting("kernels", "channel: which one is lost")
    reason: str = setting("", "channel: why, as the producer says it")
    frames: str = setting("", "call stack of the main thread meanwhile, outermost first, separated by ;")
    counters: Counters = setting(
        "", "what dcgm-exporter shows of the ranks' GPUs: thermal or power-brake (a clock lower by `factor`, "
        "and why), xid-63, xid-79; empty: nothing of any GPU"
    )  # fmt: skip
    onset_step: int = setting(0, "first step of the fault")
    end_step: int | None = setting(None, "first healthy step again; none: it stays")
    period_steps: int = setting(1, "length of the duty cycle in steps")
    active_steps: int = setting(0, "steps of the cycle with the fault; 0: all of it, but pauses have one")
    chance: float = setting(1.0, "probability of each active step to be hit, by rank; link: by group")

    def __post_init__(self) -> None:
        if self.mechanism is None:
            raise ValueError(f"mechanism is missing; allowed: {', '.join(MECHANISMS)}")
        allowed = KEYS[self.mechanism] | _DUTY
        for name, field in self.__dataclass_fields__.items():
            default = field.default if field.default_factory is not dict else {}
            if name not in allowed and getattr(self, name) != default:
                raise ValueError(
                    f"{name} means nothing to mechanism {self.mechanism}; allowed beside the duty cycle: "
                    f"{', '.join(sorted(KEYS[self.mechanism])) or 'nothing'}"
                )
        self._check_ranges()

    def _check_ranges(self) -> None:
        _within("factor", self.factor, 0.05 if self.mechanism == "work" else 1, 10_000)
        _within("seconds", self.seconds, -1 if self.mechanism == "clock" else 0, 600)
        _within("share", self.share, 0, 1)
        _within("scatter", self.scatter, 0, 3)
        _within("position", self.position, -1, 1)
        _within("chance", self.chance, 0, 1)
        _within("onset_step", self.onset_step, 0, 10**9)
        _within("period_steps", self.period_steps, 1, 10**6)
        _within("active_steps", self.active_steps, 0, self.period_steps)
        _within("drift_steps", self.drift_steps, 0, 10**6)
        _within("dp", self.dp, 0, 1024)
        if self.end_step is not None and self.end_step <= self.onset_step:
            raise ValueError(f"end_step is {self.end_step}; allowed: above onset_step ({self.onset_step})")
        if bool(self.ranks) == bool(self.where):
            raise ValueError("ranks: give exactly one of ranks and where")
        if any(rank < 0 for rank in self.ranks):
            raise ValueError(f"ranks is {list(self.ranks)}; allowed: ranks of the topology, 0 or more")

    @property
    def cycle_steps(self) -> int:
        """Steps of each period in which the fault is there."""
        return self.active_steps or (1 if self.mechanism == "pause" else self.period_steps)

    def active(self, step: int, phase_of_period: int = 0) -> bool:
        """Whether the step lies in the fault's interval and duty cycle."""
        if step < self.onset_step or (self.end_step is not None and step >= self.end_step):
            return False
        return (step - self.onset_step - phase_of_period) % self.period_steps < self.cycle_steps


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} is {value!r}; allowed: {low:g} to {high:g}")
