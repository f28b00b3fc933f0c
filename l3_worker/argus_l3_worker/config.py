"""The worker's configuration: one YAML file, checked at start; command line flags override single keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from argus_core.causes import TEAMS
from argus_core.http_access import AccessConfig
from argus_core.settings import constant, require, require_positive, section, setting
from argus_l3_worker.judge.config import CrossCheckConfig, JudgeConfig
from argus_l3_worker.read.config import PrometheusConfig
from argus_l3_worker.traces.config import TracesConfig
from argus_l3_worker.write.config import WriteConfig

LONGEST_CYCLE_SECONDS: Final = 90.0
"""To rules a verdict has ended after three minutes: a cycle and most of the next, until it is written."""


@dataclass(frozen=True)
class WebConfig:
    """The worker's own /metrics and /healthz."""

    listen_address: str = setting("0.0.0.0:9878", "HOST:PORT; port 0 takes a free one and says which")

    def __post_init__(self) -> None:
        host, colon, port = self.listen_address.rpartition(":")
        require(
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
    witness: CrossCheckConfig = section(CrossCheckConfig, "KAIR and EROICA beside the verdicts")
    web: WebConfig = section(WebConfig, "the worker's own /metrics and /healthz")
    traces: TracesConfig = section(TracesConfig, "traces of single ranks: store, links, requests")
    cycle_seconds: float = setting(
        60.0, f"grid on which `serve` judges and stamps its samples; at most {LONGEST_CYCLE_SECONDS:.0f}"
    )
    budget_ratio: float = constant(
        0.8,
        "share of a cycle that queries and judging may take in `serve`; small kernels are left out beyond",
    )
    settle_seconds: float = setting(
        10.0, "judge this long behind the grid, so that every scrape of the time is stored"
    )
    history_seconds: float = setting(600.0, "how far back windows are looked for")
    unmarked_window_seconds: float = constant(
        60.0, "spacing of windows where the job marks no steps (argus_kernel_window_steps 0)"
    )
    training_job: str = setting("", "judge only this training job; empty: all")
    teams: dict[str, str] = setting(
        {},
        "teams by cause, where they are not those of the table of causes: what the mixin was told, as rules "
        "and worker must name the same",
    )
    worker: str = setting(
        "", "name of this worker, where there are several: a label `worker` on all results; empty: none"
    )

    def __post_init__(self) -> None:
        require_positive(self, "cycle_seconds", "history_seconds", "unmarked_window_seconds")
        require(
            self.cycle_seconds <= LONGEST_CYCLE_SECONDS,
            f"cycle_seconds is {self.cycle_seconds!r}; allowed: up to {LONGEST_CYCLE_SECONDS:.0f}, as "
            "the rules look back three minutes",
        )
        require(
            0 < self.budget_ratio <= 1, f"budget_ratio is {self.budget_ratio!r}; allowed: over 0, up to 1"
        )
        require(self.settle_seconds >= 0, f"settle_seconds is {self.settle_seconds!r}; allowed: 0 or more")
        for cause in sorted(self.teams.keys() - TEAMS.keys()):
            require(False, f"teams.{cause} names no cause; allowed: {', '.join(TEAMS)}")

    @property
    def matchers(self) -> dict[str, str]:
        """Labels of the jobs that are judged."""
        return {"training_job": self.training_job} if self.training_job else {}

    @property
    def write_url(self) -> str:
        return self.write.url or self.prometheus.url.rstrip("/") + "/api/v1/write"

    @property
    def write_access(self) -> tuple[AccessConfig, str]:
        """(how to reach the receiver, the section that says so): Prometheus itself is reached in one way."""
        if self.write.url or self.write.access_given:
            return self.write, "write"
        return self.prometheus, "prometheus"
