"""`argus-exporter budget`: series and memory of a fleet, as a table or JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json
from dataclasses import fields

from argus_exporter.budget.forecast import Forecast, forecast
from argus_exporter.budget.series import Fleet
from argus_exporter.errors import ArgusExporterError

_HELP = {
    "ranks": "ranks of all jobs that one Prometheus holds",
    "ranks_per_host": "ranks that share an exporter",
    "phases": "named phases of a rank",
    "layers": "(layer, micro-batch) pairs that are sampled of a rank; 0: no layers",
    "groups": "comparison groups of a rank: dp, tp, pp, ...",
    "pairs": "(kernel, stream) pairs published a rank (kernels.top_pairs); 0: no kernel channel",
    "modes": "modes of a pair, on average",
    "frames": "(thread, frame) pairs of stacks published a rank; 0: no stacks",
    "nccl": "communicators a rank that go over the network, with ARGUS_NCCL; 0: it is off",
    "replicas": "L3 workers; 0: none",
    "step_samples": "argus_iteration_seconds is written: one more a rank",
    "long_steps": "steps take 25 s and more: means of the last ten minutes, two more a phase",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for field in fields(Fleet):
        flag = "--" + field.name.replace("_", "-")
        if field.default is False:
            parser.add_argument(flag, action="store_true", help=_HELP[field.name])
            continue
        kind = float if field.name == "modes" else int
        required = field.default is dataclasses.MISSING
        shown = "" if required else f" (default: {field.default})"
        parser.add_argument(
            flag,
            type=kind,
            required=required,
            default=None if required else field.default,
            metavar="N",
            help=_HELP[field.name] + shown,
        )
    parser.add_argument(
        "--scrape-seconds", type=float, default=15.0, metavar="S", help="between scrapes (default: 15)"
    )
    parser.add_argument("--json", action="store_true", help="as JSON, for machines")


def run(options: argparse.Namespace) -> int:
    try:
        fleet = Fleet(**{field.name: getattr(options, field.name) for field in fields(Fleet)})
        found = forecast(fleet, options.scrape_seconds)
    except ValueError as error:
        raise ArgusExporterError(f"budget: {error}") from error
    print(json.dumps(dataclasses.asdict(found), indent=2) if options.json else table(fleet, found))
    return 0


def table(fleet: Fleet, found: Forecast) -> str:
    """For people."""
    lines = [f"{'source':<24} {'a rank':>8} {'series':>12}"]
    for name, count in found.sources.items():
        lines.append(f"{name:<24} {count / fleet.ranks:>8.1f} {count:>12,.0f}")
    lines += [
        f"{'all':<24} {found.series / fleet.ranks:>8.1f} {found.series:>12,.0f}",
        "",
        f"memory of Prometheus   {found.memory_bytes / 2**30:8.1f} GiB",
        f"samples a second       {found.samples_per_second:8,.0f}",
        f"disk                   {found.disk_bytes_per_day / 1e9:8.1f} GB a day",
    ]
    if found.servers > 1:
        lines.append(f"too much for one server: spread the jobs over {found.servers} (docs/scale-out.md)")
    return "\n".join(lines)
