"""`argus-l3-worker doctor`: is all there that the worker needs, and what to do about what is not."""

from __future__ import annotations

import asyncio
import json
import math
import re
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final, Literal

import aiohttp

from argus_core import catalogue
from argus_core.http_access import Access
from argus_core.remote_write import Refused
from argus_core.remote_write_sender import PATHS, Sender, Unavailable
from argus_core.store.base import StoreError
from argus_core.store.config import open_store
from argus_l3_worker import PROGRAM
from argus_l3_worker.config import Config
from argus_l3_worker.errors import PartialAnswer, QueryError
from argus_l3_worker.identity import ambiguity
from argus_l3_worker.read.prometheus import Prometheus, Sample, selector
from argus_l3_worker.telemetry import Telemetry

State = Literal["ok", "wait", "warn", "fail"]

ALERTS: Final = (
    "ArgusChannelDown", "ArgusCollectiveLateRank", "ArgusCollectiveSlowLink", "ArgusGroupImbalance",
    "ArgusHostStall", "ArgusIterationJitter", "ArgusIterationRegression", "ArgusJobNameClash",
    "ArgusKernelDegraded", "ArgusKernelGroupShift", "ArgusL3WorkerBehind", "ArgusOverheadBudget",
    "ArgusRankMissing", "ArgusRecordsDropped", "ArgusRulesBehind", "ArgusStragglerRank",
    "ArgusTrainingStalled",
)  # fmt: skip
"""The alerts of the shipped rules."""
RECORDED: Final = (
    "rank:argus_verdict:active",
    "rank:argus_finding:lost_ratio",
    "rank:argus_exclusion:lost_ratio",
    "rank:argus_decision:lost_ratio",
    "job:argus_iteration:class",
    "job:argus_lost:ratio",
    "job:argus_lost_gpus:current",
)
"""Recorded series that this worker and the dashboards read of findings."""

_ON_PURPOSE: Final = re.compile("disabled|not_configured|launch_rate|.+_inprocess")
"""Reasons for which no ArgusChannelDown is told: `ignoredReasons` of jsonnet/config.libsonnet."""

# The Date header has whole seconds, and an answer takes its time.
_CLOCK_SECONDS: Final = 2.0
_LEAST_AGREEMENT: Final = 0.5
_LEAST_COVERAGE: Final = 0.9
_LEAST_KERNEL_COVERAGE: Final = 0.5
_SCRAPED_SECONDS: Final = 120
# At 15 s there are eight; at 30 s windows of half a minute have one.
_LEAST_SCRAPES: Final = 6


@dataclass(frozen=True)
class Check:
    """One precondition; `wait`: not yet there, nothing is broken. No `remedy`: there is nothing to do."""

    name: str
    state: State
    detail: str
    remedy: str = ""


async def examine(config: Config, clock: Callable[[], float] = time.time) -> list[Check]:
    """All checks, in the order in which they should be mended."""
    async with aiohttp.ClientSession() as session:
        prometheus = Prometheus(session, config.prometheus, Telemetry())
        found = [check async for check in _backend(prometheus, config, clock)]
        if found[0].state != "fail":
            found.append(await _receiver(session, config))
            found.append(await _rules(prometheus, clock()))
            found += [check async for check in _series(prometheus, config, clock())]
    found.append(await asyncio.to_thread(_store, config))
    found.append(await asyncio.to_thread(_spool, config))
    return found


def healthy(checks: Sequence[Check]) -> bool:
    """Whether the worker can do its work: warnings do not stop it, nor does what comes by itself."""
    return all(check.state != "fail" for check in checks)


def table(checks: Sequence[Check]) -> str:
    """For people."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{check.state:4}  {check.name:{width}}  {check.detail}")
        if check.remedy:
            lines.append(f"{'':4}  {'':{width}}  -> {check.remedy}")
    return "\n".join(lines) + "\n"


def as_json(checks: Sequence[Check]) -> str:
    """For programs."""
    return json.dumps({"healthy": healthy(checks), "checks": [asdict(check) for check in checks]}, indent=2)


async def _backend(
    prometheus: Prometheus, config: Config, clock: Callable[[], float]
) -> AsyncIterator[Check]:
    url = config.prometheus.url
    begun = clock()
    try:
        await prometheus.instant("vector(1)", begun)
        status, body, headers = await prometheus.get("/api/v1/status/buildinfo")
    except PartialAnswer as error:
        yield Check("prometheus", "warn", str(error), "repair the store behind it; partial windows wait")
        return
    except QueryError as error:
        yield Check("prometheus", "fail", str(error), "check prometheus.url, its TLS and its password")
        return
    ended = clock()
    version = _field(body, "version") if status == 200 else ""
    yield Check("prometheus", "ok", f"{url} answers{f', version {version}' if version else ''}")
    stamp = headers.get("Date", "")
    if stamp:
        theirs = parsedate_to_datetime(stamp).timestamp() + 0.5
        skew = theirs - (begun + ended) / 2.0
        margin = (ended - begun) / 2.0 + _CLOCK_SECONDS
        detail = f"Prometheus is {skew:+.1f} s against this machine"
        if abs(skew) <= margin:
            yield Check("clock", "ok", detail)
        else:
            late = abs(skew) > max(config.settle_seconds, margin)
            yield Check(
                "clock",
                "fail" if late else "warn",
                f"{detail}: samples would be stamped in the future, or read before they are there",
                "synchronise both clocks (chrony or NTP); settle_seconds covers what remains",
            )


async def _receiver(session: aiohttp.ClientSession, config: Config) -> Check:
    """Sends a request without series, which every receiver takes and nobody stores."""
    access, key = config.write_access
    sender = Sender(config.write_url, Access(access, key, PROGRAM), config.write.timeout_seconds)
    try:
        await sender.post(session, [])
    except Unavailable as error:
        return Check("remote write", "fail", error.happened, error.remedy or "see the receiver's log")
    except Refused as error:
        return Check("remote write", "fail", f"{config.write_url} answers {error}", PATHS)
    return Check("remote write", "ok", f"{config.write_url} takes remote write {sender.version}.0")


async def _rules(prometheus: Prometheus, now: float) -> Check:
    try:
        status, body, _ = await prometheus.get("/api/v1/rules")
        groups = json.loads(body)["data"]["groups"] if status == 200 else None
        rules = [rule for group in groups or () for rule in group["rules"]]
        names = {str(rule["name"]) for rule in rules}
    except (QueryError, ValueError, KeyError, TypeError):
        groups, rules, names = None, [], set()
    if not groups and (elsewhere := await _evaluated(prometheus, now)):
        return Check("rules", "ok", f"evaluated elsewhere, this backend lists none: {elsewhere}")
    if groups is None:
        return Check(
            "rules",
            "warn",
            "this backend does not say which rules are loaded, and holds no argus_rules_info",
            "load rules/*.yaml in what evaluates rules for it (Prometheus, ruler, vmalert) and look there",
        )
    wanted = (*RECORDED, *ALERTS)
    if missing := [name for name in wanted if name not in names]:
        return Check(
            "rules",
            "fail" if len(missing) == len(wanted) else "warn",
            f"{len(missing)} of {len(wanted)} rules are not loaded: {', '.join(missing[:5])}"
            + (", ..." if len(missing) > 5 else ""),
            "add all of rules/argus*.yaml to rule_files and reload Prometheus; where another evaluates them "
            "(a ruler, vmalert), its remote write must come here: argus_rules_info shows it",
        )
    ours = [rule for rule in rules if "argus" in str(rule["name"]).lower()]
    if broken := [rule for rule in ours if rule.get("health") == "err"]:
        return Check(
            "rules",
            "warn",
            f"{len(broken)} rules fail, first {broken[0]['name']}: {broken[0].get('lastError', '')}",
            "see Status > Rules in Prometheus; two exporters with the same rank are the usual cause",
        )
    if fresh := [rule for rule in ours if rule.get("health") == "unknown"]:
        return Check(
            "rules",
            "wait",
            f"{len(fresh)} rules are loaded, and not evaluated yet",
            "look again in five minutes: the longest interval is four",
        )
    return Check("rules", "ok", f"all alerts and recorded series are loaded ({len(names)} names)")


async def _evaluated(prometheus: Prometheus, now: float) -> str:
    """Which rules record into this backend, wherever they are evaluated; empty: none."""
    try:
        told = await prometheus.instant("argus_rules_info", now)
    except QueryError:
        return ""
    of = sorted({f"{one.labels.get('flavour', '')} {one.labels.get('version', '')}" for one in told})
    return ", ".join(of)


async def _series(prometheus: Prometheus, config: Config, now: float) -> AsyncIterator[Check]:
    matchers, at = config.matchers, now - config.settle_seconds

    async def by_job(query: str) -> dict[str, float]:
        samples: list[Sample] = await prometheus.instant(query, at)
        return {sample.labels.get("training_job", ""): sample.value for sample in samples}

    def counted(family: catalogue.Family) -> str:
        return f"count by (training_job) ({selector(family.name, matchers)})"

    try:
        known = await by_job(counted(catalogue.RANK_INFO))
        info = await prometheus.instant(selector(catalogue.RANK_INFO.name, matchers), at)
        modes = await by_job(counted(catalogue.KERNEL_MODE_EVENTS))
        events = selector(catalogue.KERNEL_MODE_EVENTS.name, matchers)
        with_modes = await by_job(f"count by (training_job) (count by (training_job, rank) ({events}))")
        publishing = await by_job(counted(catalogue.KERNEL_WINDOW_LAST_STEP))
        lost = await by_job(f"{counted(catalogue.RANK_UP)[:-1]} == 0)")
        last_step = selector(catalogue.KERNEL_WINDOW_LAST_STEP.name, matchers)
        steps = await prometheus.instant(f'count_values by (training_job) ("last_step", {last_step})', at)
        covered = await prometheus.instant(selector(catalogue.KERNEL_COVERAGE.name, matchers), at)
        open_ = selector(catalogue.CHANNEL_UP.name, {**matchers, "channel": "kernels"})
        observed = await by_job(f"count by (training_job) ({open_} == 1)")
        down = await by_job(f"count by (training_job) ({open_} == 0)")
        of_kernels = selector(catalogue.CHANNEL_INFO.name, {**matchers, "channel": "kernels"})
        reasons = await prometheus.instant(f"count by (training_job, reason) ({of_kernels})", at)
        exporters = await prometheus.instant(f"count({catalogue.EXPORTER_BUILD_INFO.name})", at)
        up = selector(catalogue.RANK_UP.name, matchers)
        scrapes = await by_job(
            f"max by (training_job) (count_over_time({up}[{_SCRAPED_SECONDS - 1}s]) "
            f"and {up} offset {_SCRAPED_SECONDS}s)"
        )
    except QueryError as error:
        yield Check("series", "fail", str(error), "see above")
        return
    if not known:
        wanted = f" of job {config.training_job}" if config.training_job else ""
        if exporters:
            yield Check(
                "series",
                "wait",
                f"{exporters[0].value:.0f} exporters are scraped, no argus_rank_info{wanted} has come yet",
                "start a job with `argus-exporter run`; a job that runs and does not come in a minute is not "
                "attached: see its exporter's index page",
            )
            return
        yield Check(
            "series",
            "fail",
            f"no argus_rank_info{wanted}: Prometheus scrapes no exporter that has a rank",
            "start argus-exporter on each host, add it to scrape_configs (port 9877), and run the job with "
            "`argus-exporter run`",
        )
        return
    for job, ranks in sorted(known.items()):
        if mixed := ambiguity(one for one in info if one.labels.get("training_job", "") == job):
            yield Check(
                f"series of {job}",
                "fail",
                f"not one job, so the worker does not judge it: {mixed}",
                "give each cluster, tenant or server a worker that reads its own Prometheus",
            )
            continue
        if scrapes.get(job, math.inf) < _LEAST_SCRAPES:
            yield Check(
                f"scrapes of {job}",
                "warn",
                f"{scrapes[job]:.0f} in {_SCRAPED_SECONDS // 60} minutes, the rules want one each 15 s: "
                "windows of half a minute (what is told at once) and a minute (kernels) hold too few",
                "scrape_interval: 15s for the job argus, or rules for yours (_config.interval of the mixin)",
            )
        if not modes.get(job) and observed.get(job):
            yield Check(
                f"series of {job}",
                "wait",
                f"{ranks:.0f} ranks, kernels are observed on {observed[job]:.0f}, no window has ended yet",
                "look again when the job has made some more steps (exporter: window)",
            )
            continue
        if not modes.get(job) and not down.get(job):
            yield Check(
                f"series of {job}",
                "wait",
                f"{ranks:.0f} ranks, and of none a kernel channel yet: their phases are judged without",
                "a job without GPUs has none; if one with GPUs has none after its first steps, the library "
                "is not there or not loaded",
            )
            continue
        if not modes.get(job):
            why = {one.labels.get("reason", "") for one in reasons if one.labels.get("training_job") == job}
            yield Check(
                f"series of {job}",
                "warn" if why and all(map(_ON_PURPOSE.fullmatch, why)) else "fail",
                f"{ranks:.0f} ranks, but no kernel modes: the channel is down on {down[job]:.0f}"
                + (f" ({', '.join(sorted(why))})" if why else ""),
                "docs/troubleshooting.md, No kernels, says what to do about each reason",
            )
            continue
        yield Check(f"series of {job}", "ok", f"{ranks:.0f} ranks, {modes[job]:.0f} kernel modes")
        share = publishing.get(job, 0.0) / ranks
        gone = lost.get(job, 0.0)
        yield _expected(
            share >= _LEAST_COVERAGE and not gone,
            f"ranks of {job}",
            f"{share:.0%} of the ranks publish kernel windows, {gone:.0f} are lost",
            "argus_rank_up == 0 names the lost ones; argus_channel_up == 0 those without kernels",
        )
        if (told := with_modes.get(job, 0.0)) < _LEAST_COVERAGE * publishing.get(job, 0.0):
            yield Check(
                f"modes of {job}",
                "warn",
                f"kernel modes are there of {told:.0f} of {publishing[job]:.0f} ranks that publish windows",
                "the store refuses a part: raise its limit of series a metric (Cortex and Mimir: "
                "max_global_series_per_metric, 50,000 in Cortex), or lower top_pairs of the exporter",
            )
        alike = max((one.value for one in steps if one.labels.get("training_job", "") == job), default=0.0)
        same = alike / max(publishing.get(job, 0.0), 1.0)
        yield _expected(
            same > _LEAST_AGREEMENT,
            f"windows of {job}",
            f"{same:.0%} of the publishing ranks describe the same window",
            "try again in a minute; else the ranks count steps differently, or scrapes are far apart",
        )
        ratios = [one.value for one in covered if one.labels.get("training_job", "") == job]
        if ratios and (middle := statistics.median(ratios)) < _LEAST_KERNEL_COVERAGE:
            yield Check(
                f"kernels of {job}",
                "warn",
                f"the published kernels hold {middle:.0%} of kernel time on the median rank",
                "raise top_pairs of the exporter",
            )


def _expected(well: bool, name: str, detail: str, remedy: str) -> Check:
    return Check(name, "ok", detail) if well else Check(name, "warn", detail, remedy)


def _store(config: Config) -> Check:
    try:
        store = open_store(config.traces.store)
        next(iter(store.list("doctor/")), None)
    except StoreError as error:
        return Check(
            "trace store",
            "warn",
            f"{error}",
            "correct traces.store (the same as in the exporters), or set traces.serve to false",
        )
    if config.traces.store.type == "folder" and not Path(store.name).is_dir():
        return Check(
            "trace store",
            "wait",
            f"{store.name} does not exist: no exporter has stored a trace there yet",
            "an exporter on another host stores its traces there if both have the folder, or a bucket "
            "(traces.store)",
        )
    return Check("trace store", "ok", f"{store.name} can be listed")


def _spool(config: Config) -> Check:
    folder = config.write.spool_dir
    if folder is None:
        return Check(
            "spool",
            "warn",
            "undelivered results are kept in memory: a restart loses them",
            "set write.spool_dir, or run under systemd with StateDirectory=",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        return Check(
            "spool",
            "fail",
            f"{folder} cannot be written ({error.strerror})",
            "name a writable folder with --spool.dir",
        )
    return Check("spool", "ok", f"{folder} can be written")


def _field(body: bytes, name: str) -> str:
    try:
        content: Any = json.loads(body)
        return str(content["data"][name])
    except (ValueError, KeyError, TypeError):
        return ""
