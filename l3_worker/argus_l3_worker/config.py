"""The worker's configuration: one YAML file, checked at start; command line flags override single keys."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from argus_core.settings import section, setting
from argus_l3_worker.http_access import AccessConfig
from argus_traces.config import TracesConfig


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _require_positive(owner: object, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        _require(0 < value < float("inf"), f"{name} is {value!r}; allowed: a number over 0")


def _require_no_secret(url: str) -> None:
    # URLs are in every log line.
    _require("@" not in urlsplit(url).netloc, "url holds a user or password; allowed: basic_auth for them")


@dataclass(frozen=True)
class PrometheusConfig(AccessConfig):
    """Where triples are read."""

    url: str = setting("http://127.0.0.1:9090", "base URL of the Prometheus HTTP API")
    timeout_seconds: float = setting(30.0, "longest wait for one answer")
    concurrency: int = setting(4, "queries in flight at a time")
    shard_series: int = setting(50_000, "a query asks for about this many series at most; kernels are split")
    max_kernels: int = setting(5_000, "kernels of a job that are asked for at most, by share of kernel time")
    gzip: bool = setting(
        False,
        "ask for compressed answers: for thin lines only, since Prometheus takes longer to compress than a "
        "fast line to carry them",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_positive(self, "timeout_seconds", "concurrency", "shard_series", "max_kernels")
        _require(
            self.url.startswith(("http://", "https://")),
            f"url is {self.url!r}; allowed: a URL that starts with http:// or https://",
        )
        _require_no_secret(self.url)


@dataclass(frozen=True)
class WriteConfig(AccessConfig):
    """Where results go, and what happens while the receiver is away."""

    url: str = setting("", "remote write URL; empty: /api/v1/write of prometheus.url")
    timeout_seconds: float = setting(15.0, "longest wait for one request")
    series_per_request: int = setting(2_000, "series in one request")
    attempts: int = setting(3, "tries of a request within one cycle before it is spooled")
    backoff_seconds: float = setting(0.5, "wait after the first failed try; doubles with each")
    spool_dir: Path | None = setting(
        None, "folder that keeps undelivered requests over a restart; null: in memory"
    )
    spool_bytes: int = setting(64 << 20, "bytes of undelivered requests kept; the oldest go first")
    spool_age_seconds: float = setting(3600.0, "older requests are dropped: the receiver would refuse them")

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_positive(
            self,
            "timeout_seconds",
            "series_per_request",
            "attempts",
            "backoff_seconds",
            "spool_bytes",
            "spool_age_seconds",
        )
        _require(
            self.url == "" or self.url.startswith(("http://", "https://")),
            f"url is {self.url!r}; allowed: empty, or a URL that starts with http:// or https://",
        )
        _require_no_secret(self.url)


@dataclass(frozen=True)
class JudgeConfig:
    """What counts as an anomaly. Effects are ratios: 0.1 is 10 % slower."""

    alpha: float = setting(3.0, "Tukey fence Q3 + alpha (Q3 - Q1) of W1 scores; the paper leaves it open")
    min_ranks: int = setting(
        4, "ranks of a role below which fence and deviations mean nothing: median ratio alone"
    )
    min_events: int = setting(20, "events of a mode below which its median is not compared")
    min_coverage: float = setting(
        0.5, "share of compute time that must be comparable, else the role is not judged"
    )
    deviations: float = setting(5.0, "robust deviations that a shift must exceed")
    kernel_effect: float = setting(0.10, "least shift of one kernel (or one of its modes) that is an anomaly")
    tail_effect: float = setting(0.5, "least shift of a mode's p99 that is an anomaly while its p50 is not")
    tail_share: float = setting(
        0.005, "least share of launches, above what is usual, that take far longer than their kernel's modes"
    )
    tail_windows: int = setting(
        12, "windows that persistence of these looks at: intermittent faults come in bursts"
    )
    workload_spread: float = setting(
        0.03,
        "least share by which the busiest tenth of a role's ranks runs its kernels more often than the least "
        "busy tenth, in the same steps: uneven work",
    )
    rank_effect: float = setting(0.04, "least time-weighted shift of all compute kernels that is an anomaly")
    censored_effect: float = setting(
        0.25,
        "a pair that most ranks do not publish: least excess over the most it can have taken there; launches "
        "cannot be compared, so more of them look like slower ones",
    )
    group_effect: float = setting(0.03, "least distance between two clusters of ranks that is a group shift")
    collective_group_effect: float = setting(
        0.25, "a collective: least excess of a process group's shortest durations over those of other groups"
    )
    coordinates: tuple[str, ...] = setting(
        ("node", "rack", "dp", "tp", "ep", "edp"),
        "labels of argus_rank_info that may tell two clusters of ranks apart; edp is derived from dp and ep",
    )
    small_role_effect: float = setting(0.25, "least shift in roles of fewer than min_ranks ranks")
    min_share: float = setting(0.01, "kernels below this share of the rank's kernel time raise nothing")
    min_duration_seconds: float = setting(
        50e-6, "kernels with a shorter mean duration raise nothing alone, only by their weight in the rank"
    )
    windows: int = setting(3, "windows that persistence looks at")
    windows_needed: int = setting(2, "of these, windows that must agree")

    def __post_init__(self) -> None:
        _require_positive(
            self, "min_events", "deviations", "kernel_effect", "tail_effect", "rank_effect",
            "small_role_effect", "censored_effect", "group_effect", "collective_group_effect",
            "windows", "windows_needed", "tail_share", "tail_windows", "workload_spread",
        )  # fmt: skip
        _require(self.alpha >= 0, f"alpha is {self.alpha!r}; allowed: 0 or more")
        _require(self.min_ranks >= 3, f"min_ranks is {self.min_ranks!r}; allowed: 3 or more")
        for name in ("min_share", "min_coverage"):
            value = getattr(self, name)
            _require(0 <= value < 1, f"{name} is {value!r}; allowed: 0 up to, not including, 1")
        _require(self.min_duration_seconds >= 0, "min_duration_seconds is negative; allowed: 0 or more")
        _require(
            self.windows_needed <= self.windows,
            f"windows_needed is {self.windows_needed}; allowed: up to windows ({self.windows})",
        )


@dataclass(frozen=True)
class WitnessConfig:
    """Second and third opinions: EROICA's function patterns and KAIR's execution rhythm."""

    enabled: bool = setting(True, "publish argus_l3_eroica_distance and argus_l3_rhythm_divergence")
    window_seconds: float = setting(300.0, "time that both look at")
    slices: int = setting(30, "slices of it in which completions are counted; each at least a scrape long")

    def __post_init__(self) -> None:
        _require_positive(self, "window_seconds")
        _require(3 <= self.slices <= 1000, f"slices is {self.slices!r}; allowed: 3 to 1000")


@dataclass(frozen=True)
class WebConfig:
    """The worker's own /metrics and /healthz."""

    listen_address: str = setting("0.0.0.0:9878", "HOST:PORT; port 0 takes a free one and says which")

    def __post_init__(self) -> None:
        host, colon, port = self.listen_address.rpartition(":")
        _require(
            bool(host) and bool(colon) and port.isdigit() and int(port) < 65536,
            f"listen_address is {self.listen_address!r}; allowed: HOST:PORT, for example 127.0.0.1:9878",
        )

    @property
    def host(self) -> str:
        return self.listen_address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.listen_address.rpartition(":")[2])


@dataclass(frozen=True)
class Config:
    """All settings of the worker."""

    prometheus: PrometheusConfig = section(PrometheusConfig, "where triples are read")
    write: WriteConfig = section(WriteConfig, "where results go")
    judge: JudgeConfig = section(JudgeConfig, "what counts as an anomaly")
    witness: WitnessConfig = section(WitnessConfig, "second and third opinions")
    web: WebConfig = section(WebConfig, "the worker's own /metrics and /healthz")
    traces: TracesConfig = section(TracesConfig, "traces of single ranks: store, links, requests")
    cycle_seconds: float = setting(60.0, "grid on which `serve` judges and stamps its samples")
    budget_ratio: float = setting(
        0.8,
        "share of a cycle that queries and judging may take in `serve`; small kernels are left out beyond",
    )
    settle_seconds: float = setting(
        10.0, "judge this long behind the grid, so that every scrape of the time is stored"
    )
    history_seconds: float = setting(600.0, "how far back windows are looked for")
    unmarked_window_seconds: float = setting(
        60.0, "spacing of windows where the job marks no steps (argus_kernel_window_steps 0)"
    )
    training_job: str = setting("", "judge only this training job; empty: all")
    replica: str = setting("", "value of a `replica` label on all results; empty: no such label")

    def __post_init__(self) -> None:
        _require_positive(self, "cycle_seconds", "history_seconds", "unmarked_window_seconds")
        _require(
            0 < self.budget_ratio <= 1, f"budget_ratio is {self.budget_ratio!r}; allowed: over 0, up to 1"
        )
        _require(self.settle_seconds >= 0, f"settle_seconds is {self.settle_seconds!r}; allowed: 0 or more")

    @property
    def write_url(self) -> str:
        return self.write.url or self.prometheus.url.rstrip("/") + "/api/v1/write"

    @property
    def write_access(self) -> tuple[AccessConfig, str]:
        """(how to reach the receiver, the section that says so): Prometheus itself is reached in one way."""
        if self.write.url or self.write.access_given:
            return self.write, "write"
        return self.prometheus, "prometheus"
