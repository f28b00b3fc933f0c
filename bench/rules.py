"""All rules at the size of a large job, in a real Prometheus: `python -m bench.rules`.

Tensor parallel 4, pipeline 4, data parallel by the rest, 12 phases a rank with the labels that an exporter
gives them, steps of 4 s, one rank slow. A past of half an hour comes first, thinly and quickly; then
Prometheus scrapes every host each 15 s and evaluates all rules at their own intervals, with a rule group for
each of the 12 phases (`_config.phases`). Prints the groups and ends in one JSON line:

    group_p95_s   95th percentile of all evaluations of all groups, seconds
    slowest_p95_s the largest 95th percentile of any one group
    sum_s         seconds of all groups in one scrape interval: a group each 5 s counts three times, one each
                  minute a quarter
    once_s        mean seconds of every group, each once
    cpu_s         CPU seconds of Prometheus a scrape interval, scraping included
    rss_gb        resident memory of Prometheus at the end, 2^30 bytes
    series        series in its head
    scrapes_failed of the last interval
    prometheus    its version, which decides most of it

Groups that run at the same moment share the cores: beside other work the times are upper bounds.
`--scrape-only` evaluates nothing: what the exporters' own series cost.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import rjsonnet

from argus_core import remote_write
from bench.rules_exporters import JOB, Exporters
from bench.series_writer import Series
from bench.servers import PrometheusServer, process_metric

JSONNET = Path(__file__).resolve().parents[1] / "jsonnet"
SCRAPE = 15.0
STEP_SECONDS = 4.0
PHASES = {
    "data": "host",
    "forward": "compute",
    "backward": "compute",
    "optimizer": "compute",
    "attention": "compute",
    "mlp": "compute",
    "embedding": "compute",
    "loss": "compute",
    "clip": "compute",
    "tp_all_reduce": "comm",
    "pp_send_recv": "comm",
    "dp_reduce_scatter": "comm",
}
_TP, _PP = 4, 4
_HOST = 8
_SLOW = 77
PAST = [*range(1860, 180, -240), *range(180, 0, -15)]
"""Ages of the samples that come first, seconds: half an hour, thinly, then every scrape."""


def fleet(ranks: int) -> Iterator[Series]:
    """What the exporters of a job say, steadily."""
    rng = np.random.default_rng(1)
    for rank in range(ranks):
        host = f"host{rank // _HOST}"
        base = {"training_job": "bench", "rank": str(rank), "instance": f"{host}:9877", "job": JOB}
        stage = f"pp{rank // _TP % _PP}.tp{rank % _TP}"
        groups = {
            "dp": f"dp:{stage}",
            "tp": f"tp:{rank // _TP}",
            "pp": f"pp:{rank // (_TP * _PP)}.{rank % _TP}",
        }
        told = [
            ("argus_rank_up", 1.0, 0.0),
            ("argus_iteration_duration_seconds_count", 100.0, 1.0),
            ("argus_iteration_duration_seconds_sum", 400.0, STEP_SECONDS),
        ]
        if rank % _HOST == 0:
            told += [
                ("argus_rank_lead_number", rank, 0.0),
                ("argus_iteration_duration_seconds_squared_total", 1600.0, STEP_SECONDS**2),
                ("argus_iteration_window_min_seconds", 0.99 * STEP_SECONDS, 0.0),
                ("argus_iteration_window_max_seconds", 1.01 * STEP_SECONDS, 0.0),
            ]
            of_job = {name: base[name] for name in ("training_job", "instance", "job")}
            ended = remote_write.labels_of("argus_job_last_iteration_timestamp_seconds", **of_job)
            yield Series(ended, time.time() - PAST[0], STEP_SECONDS)
            usual = remote_write.labels_of("argus_job_usual_iteration_seconds", **of_job)
            yield Series(usual, STEP_SECONDS, 0.0)
            world = remote_write.labels_of("argus_job_world_size", **of_job)
            yield Series(world, float(ranks), 0.0)
        for metric, value, slope in told:
            yield Series(remote_write.labels_of(metric, **base), value, slope)
        place = {"tp": rank % _TP, "pp": rank // _TP % _PP, "dp": rank // (_TP * _PP)}
        info = base | {"node": host} | {name: str(index) for name, index in place.items()}
        yield Series(remote_write.labels_of("argus_rank_info", **info), 1.0, 0.0)
        for dimension, group in groups.items():
            labels = base | {"group": group}
            size = {"dp": ranks // (_TP * _PP), "tp": _TP, "pp": _PP}[dimension]
            yield Series(remote_write.labels_of("argus_group_expected_ranks", **labels), size, 0.0)
        yield Series(
            remote_write.labels_of(
                "argus_phase_open_timestamp_seconds", **base, phase="forward", kind="compute", waits="none"
            ),
            time.time(),
            0.0,
        )
        yield Series(remote_write.labels_of("argus_gc_pause_seconds_sum", **base, generation="2"), 1.0, 0.001)
        yield Series(remote_write.labels_of("argus_rank_number", **base), rank, 0.0)
        for phase, kind in PHASES.items():
            waits = phase[:2] if kind == "comm" else "none"
            yield Series(
                remote_write.labels_of("argus_phase_info", **base, phase=phase, kind=kind, waits=waits),
                1.0,
                0.0,
            )
            seconds = STEP_SECONDS / len(PHASES) * (1 + 0.005 * rng.standard_normal())
            seconds *= 1.6 if rank == _SLOW and kind == "compute" else 1.0
            group = groups[phase[:2]] if kind == "comm" else groups["dp"]
            where = base | {"phase": phase, "kind": kind, "group": group}
            totals = where | {"source": "event"}
            yield Series(remote_write.labels_of("argus_phase_duration_seconds_count", **totals), 100.0, 1.0)
            yield Series(
                remote_write.labels_of("argus_phase_duration_seconds_sum", **totals), 100 * seconds, seconds
            )
            yield Series(
                remote_write.labels_of("argus_phase_window_max_seconds", **where), 1.02 * seconds, 0.0
            )


def rules_file(folder: Path, evaluation: float = SCRAPE) -> Path:
    """All rules and alerts, with one rule group for each phase of the fleet; seconds between evaluations."""
    config = json.dumps({"phases": list(PHASES), "interval": evaluation})
    source = (
        f"local argus = (import 'mixin.libsonnet') + {{ _config+:: {config} }};"
        " { groups: argus.prometheusRules.groups + argus.prometheusAlerts.groups }"
    )
    text = rjsonnet.evaluate_snippet("bench", source, jpathdir=[str(JSONNET)])
    file = folder / "rules.json"
    file.write_text(text, encoding="utf-8")
    return file


def play_past(exporters: Exporters, began: float) -> None:
    """Every moment of `PAST`, then one each interval until now."""
    moment = began
    for age in PAST:
        moment = began + PAST[0] - age
        exporters.play(moment)
    while (moment := moment + SCRAPE) < time.time():
        exporters.play(moment)
    exporters.go_live()


def get(server: PrometheusServer, path: str) -> Any:
    with urllib.request.urlopen(f"{server.url}/api/v1/{path}", timeout=60) as answer:
        return json.load(answer)["data"]


Seconds = dict[str, list[float]]
"""Of every evaluation but the first, which creates the series that later ones append to; by name."""


def measure(server: PrometheusServer, minutes: float) -> tuple[Seconds, Seconds, dict[str, float]]:
    """Watch for some minutes: seconds by group, by rule (group, name, place), and intervals by group."""
    intervals: dict[str, float] = {}
    seen: dict[tuple[str, str], float] = {}
    seen_rules: dict[tuple[str, str], float] = {}
    end, following = time.time() + 60 * minutes, time.time()
    while time.time() < end:
        if time.time() >= following:
            following += SCRAPE
            # The list of all rules costs Prometheus as much as a rule group: once an interval.
            for group in get(server, "rules")["groups"]:
                intervals[group["name"]] = group["interval"]
                for place, rule in enumerate(group["rules"]):
                    if rule["evaluationTime"] > 0:
                        name = f"{group['name']} {rule['name']} #{place}"
                        seen_rules[name, rule["lastEvaluation"]] = rule["evaluationTime"]
        lines = server.own_metrics()
        durations, moments = (
            group_metric(lines, f"prometheus_rule_group_last_{what}_seconds")
            for what in ("duration", "evaluation_timestamp")
        )
        for name, seconds in durations.items():
            if name in moments and float(seconds) > 0:
                seen[name, moments[name]] = float(seconds)
        time.sleep(1)
    return by_name(seen), by_name(seen_rules), intervals


def by_name(seen: dict[tuple[str, str], float]) -> Seconds:
    """From (name, moment) to seconds."""
    found = defaultdict(list)
    for (name, _), seconds in sorted(seen.items(), key=lambda item: item[0][1]):
        found[name].append(seconds)
    return {name: values[1:] for name, values in found.items() if len(values) > 1}


def show(title: str, groups: Seconds, most: int) -> None:
    """The slowest, by mean."""
    width = max(len(name) for name in groups)
    print(f"{title:<{width}} {'mean s':>8} {'p95 s':>8} {'max s':>8} {'n':>4}")
    for name, values in sorted(groups.items(), key=lambda item: -float(np.mean(item[1])))[:most]:
        print(
            f"{name:<{width}} {np.mean(values):8.3f} {np.percentile(values, 95):8.3f} {max(values):8.3f}"
            f" {len(values):4d}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=10_240)
    parser.add_argument("--minutes", type=float, default=4.0, help="length of the measurement")
    parser.add_argument(
        "--evaluation", type=float, default=SCRAPE, help="evaluationInterval of the mixin, seconds"
    )
    parser.add_argument("--scrape-only", action="store_true", help="no rules: the least that it can cost")
    options = parser.parse_args()
    if options.minutes < 2:
        parser.error("--minutes is below 2, in which a group of a minute is not evaluated twice")
    # What Prometheus 2.53 and later set themselves: less memory for a little more collecting.
    os.environ.setdefault("GOGC", "75")
    series = list(fleet(options.ranks))
    print(f"{options.ranks} ranks, {len(PHASES)} phases, {len(series)} series", flush=True)
    began = time.time() - PAST[0]
    with (
        tempfile.TemporaryDirectory() as folder,
        Exporters(series, began=began, step=STEP_SECONDS) as exporters,
    ):
        del series
        server = PrometheusServer(Path(folder), arguments=("--web.enable-lifecycle",)).start()
        try:
            server.configure({"scrape_configs": [exporters.scrape_config(1.0)]})
            play_past(exporters, began)
            print(f"the past is there: {time.time() - began - PAST[0]:.0f} s", flush=True)
            rules = [] if options.scrape_only else [str(rules_file(Path(folder), options.evaluation))]
            server.configure(
                {
                    "global": {"evaluation_interval": f"{options.evaluation:g}s"},
                    "rule_files": rules,
                    "scrape_configs": [exporters.scrape_config(SCRAPE)],
                },
            )
            before, cpu = time.time(), process_metric(server, "process_cpu_seconds_total")
            groups, single, intervals = measure(server, options.minutes)
            share = (process_metric(server, "process_cpu_seconds_total") - cpu) / (time.time() - before)
            if groups:
                show("group", groups, len(groups))
                show("slowest rules", single, 25)
            verdicts = server.query('rank:argus_verdict:active{verdict="culprit"}', time.time())
            named = sorted({labels.get("rank", "") for labels, _ in verdicts})
            result = {
                "ranks": options.ranks,
                "evaluation_s": options.evaluation,
                **timings(groups, intervals),
                "cpu_s": share * SCRAPE,
                "rss_gb": process_metric(server, "process_resident_memory_bytes") / 2**30,
                "series": int(get(server, "status/tsdb")["headStats"]["numSeries"]),
                "scrapes_failed": len(server.query("up == 0", time.time())),
                "prometheus": get(server, "status/buildinfo")["version"],
                "culprits": named,
            }
            print(json.dumps(result))
        finally:
            # Nothing is kept, so nothing need be written out.
            server.kill()


def timings(groups: Seconds, intervals: dict[str, float]) -> dict[str, float]:
    """What the evaluations took; nothing where there was none."""
    if not groups:
        return {}
    return {
        "group_p95_s": float(np.percentile(np.concatenate(list(groups.values())), 95)),
        "slowest_p95_s": max(float(np.percentile(values, 95)) for values in groups.values()),
        "sum_s": float(sum(np.mean(values) * SCRAPE / intervals[name] for name, values in groups.items())),
        "once_s": float(sum(np.mean(values) for values in groups.values())),
    }


def group_metric(lines: list[str], name: str) -> dict[str, str]:
    """The values of one metric, as written, by rule group."""
    found = (re.fullmatch(rf'{name}{{rule_group=".*;(.*)"}} (.*)', line) for line in lines)
    return {match[1]: match[2] for match in found if match}


if __name__ == "__main__":
    main()
