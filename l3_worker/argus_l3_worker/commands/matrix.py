"""`argus-l3-worker matrix`: from Prometheus to a picture of one kernel."""

from __future__ import annotations

import argparse
import asyncio
import difflib
import time
from dataclasses import replace
from pathlib import Path

import aiohttp

from argus_core import catalogue
from argus_core.errors import UserError
from argus_core.option_types import moment
from argus_l3_worker.config import Config
from argus_l3_worker.errors import ArgusWorkerError
from argus_l3_worker.flags import add_flags, configuration
from argus_l3_worker.read.assemble import assemble
from argus_l3_worker.read.fetch import fetch_window
from argus_l3_worker.read.prometheus import Prometheus, Sample, selector
from argus_l3_worker.reports import heatmap
from argus_l3_worker.reports.matrix import Matrix, distance_matrix
from argus_l3_worker.reports.subjects import listed
from argus_l3_worker.telemetry import Telemetry
from argus_l3_worker.triples import PairTriples, RoleTriples


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kernel", required=True, metavar="NAME", help="the kernel label of its series")
    parser.add_argument("--stream", metavar="NAME", help="the stream label; default: the only one there is")
    parser.add_argument("--role", metavar="NAME", help="ranks of this role; default: all ranks of the job")
    parser.add_argument("--time", type=moment, metavar="UNIX", help="look at this Unix time (default: now)")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="picture to write: .html or .png"
    )
    add_flags(parser)


def run(options: argparse.Namespace) -> int:
    """Write the picture.

    Raises:
        UserError: an option, or the picture's file, cannot be used.
        ArgusWorkerError: no such job, kernel, stream or role, jobs of several clusters have the name, or
            Prometheus cannot be asked.
    """
    if options.out.suffix not in (".html", ".png"):
        raise UserError(f"--out is {options.out}; allowed: a file that ends in .html or .png")
    config = configuration(options)
    if not config.training_job:
        raise UserError("--training-job is missing; allowed: the name of one training job")
    at = time.time() if options.time is None else options.time
    matrix, elsewhere = asyncio.run(_asked(config, options, at))
    scope = f"role {options.role}" if options.role else "all ranks"
    title = f"{config.training_job}: {matrix.kernel} on {matrix.stream}, {scope}"
    try:
        if options.out.suffix == ".html":
            options.out.write_text(heatmap.as_html(matrix, title), encoding="utf-8")
        else:
            heatmap.write_png(matrix, title, options.out)
    except OSError as error:
        raise UserError(f"cannot write {options.out}: {error.strerror}") from error
    print(f"{options.out}: {len(matrix.ranks)} ranks{f' ({matrix.note})' if matrix.note else ''}")
    if elsewhere:
        print(f"not compared: {listed(elsewhere)} (no kernels, or another window)")
    return 0


async def _asked(config: Config, options: argparse.Namespace, at: float) -> tuple[Matrix, list[str]]:
    """The matrix, and the ranks that could not be compared."""
    async with aiohttp.ClientSession() as session:
        prometheus = Prometheus(session, config.prometheus, Telemetry())
        fetched = await fetch_window(
            prometheus, config.training_job, at, config.prometheus, kernels=[options.kernel]
        )
        samples = fetched.samples
        if not samples.rank_info:
            raise ArgusWorkerError(
                f"no argus_rank_info of job {config.training_job} at {at:.0f}: see --training-job and --time"
            )
        clusters = sorted({one.labels.get("cluster", "") or "(none)" for one in samples.rank_info})
        if len(clusters) > 1:
            raise ArgusWorkerError(
                f"jobs of several clusters are called {config.training_job} ({', '.join(clusters)}): "
                "ask the Prometheus of one of them (--prometheus.url)"
            )
        if not samples.modes.pairs:
            raise ArgusWorkerError(await _no_such_kernel(prometheus, config.training_job, options.kernel, at))
    if options.role:
        chosen = [one for one in samples.rank_info if one.labels.get("role") == options.role]
        if not chosen:
            roles = sorted({one.labels.get("role", "") for one in samples.rank_info} - {""})
            raise ArgusWorkerError(f"no role {options.role}; there are: {', '.join(roles) or 'none'}")
        samples = replace(samples, rank_info=chosen)
    else:
        samples = replace(samples, rank_info=[_without_role(one) for one in samples.rank_info])
    window = assemble(config.training_job, samples)
    if not window.roles:
        details = "; ".join(one.detail for one in window.abstentions)
        raise ArgusWorkerError(f"nothing to compare at {at:.0f}: {details or 'no ranks'}")
    (role,) = window.roles
    labels = {one.labels["rank"]: one.labels for one in samples.rank_info if "rank" in one.labels}
    elsewhere = [f"rank {one.rank}" for one in window.not_judged]
    return distance_matrix(_pair(role, options), role.ranks, labels), elsewhere


def _pair(role: RoleTriples, options: argparse.Namespace) -> PairTriples:
    found = [pair for pair in role.pairs if options.stream in (None, pair.stream)]
    if len(found) == 1 and len(found[0].ranks) > 1:
        return found[0]
    if len(found) == 1:
        raise ArgusWorkerError(f"one rank alone publishes {options.kernel}: nothing to compare it with")
    streams = ", ".join(sorted(pair.stream for pair in role.pairs)) or "none"
    raise ArgusWorkerError(f"{options.kernel} runs on these streams: {streams}; name one with --stream")


def _without_role(sample: Sample) -> Sample:
    return Sample({key: value for key, value in sample.labels.items() if key != "role"}, sample.value)


async def _no_such_kernel(prometheus: Prometheus, job: str, kernel: str, at: float) -> str:
    modes = selector(catalogue.KERNEL_MODE_EVENTS.name, {"training_job": job})
    known = [
        one.labels.get("kernel", "") for one in await prometheus.instant(f"count by (kernel) ({modes})", at)
    ]
    close = difflib.get_close_matches(kernel, known, n=3, cutoff=0.3)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return f"job {job} publishes no kernel {kernel} at {at:.0f}{hint}"
