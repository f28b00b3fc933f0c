"""The portable rules on VictoriaMetrics: vmalert replays them over the worlds of the matrix.

Prometheus' own engine (promtool) evaluates the same rules, and the exact flavour, over the same series.
Replay is how vmalert evaluates the past: rule after rule, in the file's order, each over the whole time.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import rjsonnet
from bench.servers import VictoriaMetricsServer, free_port

from long_forms import LONG
from rules.matrix import collectives, hosts, iterations, straggler
from rules.matrix.jobs import STEP, Series
from rules.matrix.world import Case
from rules.promtool import promtool
from rules.scenario import ROOT

MISSING = [tool for tool in ("promtool", "victoria-metrics", "vmalert") if shutil.which(tool) is None]
pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(
        bool(MISSING), reason=f"{', '.join(MISSING)} not on PATH (Debian: prometheus, victoria-metrics)"
    ),
]
SHORT = (straggler.WORLD, iterations.REGRESSION, hosts.KERNELS)
"""A mean that persists; the scan and the worker's findings, for which the flavours have their own words."""
LONG_WORLDS = (
    *SHORT,
    collectives.LATE,
    collectives.LINK,
    iterations.JITTER,
    iterations.STALL,
    iterations.COLLECTIVE,
    hosts.HEALTH,
)
WORLDS = LONG_WORLDS if LONG else SHORT
SAMPLES = 96
"""The longest of them."""
BATCH = 4
"""Jobs in one storage of promtool, whose queries may touch 10,000 samples."""
LATER = 2
"""Evaluations by which an alert may begin or end later: VictoriaMetrics keeps a vanished series so long."""
EARLIER = {"ArgusOverheadBudget": 20}
"""Evaluations by which some may begin earlier, at the start of a job: over a window that is not full yet the
rate of Prometheus is less than the job's, that of VictoriaMetrics is not."""
Fired = dict[str, tuple[int, int]]
"""First and last evaluation of each alert, by its labels."""


def series() -> dict[str, list[Series]]:
    """The faulty job of every world, and two healthy ones."""
    made = {f"{world.name} faulty": world.jobs()[Case.FIRING] for world in WORLDS}
    for world in (straggler.WORLD, iterations.REGRESSION):
        made[f"{world.name} healthy"] = world.jobs()[Case.SILENT]
    return made


def rules(folder: Path, flavour: str) -> Path:
    """All rules and alerts, evaluated at every sample, with one group for all phases."""
    source = (
        "local argus = (import 'mixin.libsonnet') + { _config+:: { phases: [], verdictInterval: 15,"
        f" slowInterval: 15, flavour: '{flavour}' }} }};"
        " { groups: argus.prometheusRules.groups + argus.prometheusAlerts.groups }"
    )
    content = json.loads(rjsonnet.evaluate_snippet("rules", source, jpathdir=[str(ROOT / "jsonnet")]))
    for group in content["groups"]:
        for rule in group["rules"]:
            # Replay refuses templates that query, and annotations do not fire.
            rule.pop("annotations", None)
    file = folder / f"{flavour}.yaml"
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def labels_of(text: dict[str, str]) -> str:
    """Of an alert, without those that an engine adds."""
    left_out = {"__name__", "alertstate", "alertgroup"}
    return ", ".join(f"{name}={value}" for name, value in sorted(text.items()) if name not in left_out)


def by_prometheus(folder: Path, file: Path) -> Fired:
    """promtool says what it got where nothing is expected."""
    groups = [group["name"] for group in json.loads(file.read_text(encoding="utf-8"))["groups"]]
    query = 'ALERTS{alertstate="firing"}'
    named = list(series().items())
    tests = [
        {
            "interval": f"{STEP}s",
            "input_series": [one.text(job) for job, made in named[first : first + BATCH] for one in made],
            "promql_expr_test": [
                {"expr": query, "eval_time": f"{sample * STEP}s", "exp_samples": []}
                for sample in range(SAMPLES)
            ],
        }
        for first in range(0, len(named), BATCH)
    ]
    test = folder / f"test-{file.name}"
    content = {
        "rule_files": [str(file)],
        "evaluation_interval": f"{STEP}s",
        "group_eval_order": groups,
        "tests": tests,
    }
    test.write_text(json.dumps(content), encoding="utf-8")  # which is YAML
    done = promtool("test", "rules", str(test))
    fired: Fired = {}
    sample = 0
    for line in (done.stdout + done.stderr).splitlines():
        if match := re.search(r"time: (?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?,$", line):
            hours, minutes, seconds = (int(part or 0) for part in match.groups())
            sample = (hours * 3600 + minutes * 60 + seconds) // STEP
        assert " err: " not in line, line
        if line.strip().startswith("got: "):
            for labels in re.findall(r"\{([^}]*)\}", line):
                alert = labels_of(dict(re.findall(r'(\w+)="([^"]*)"', labels)))
                first, _ = fired.get(alert, (sample, sample))
                fired[alert] = (first, sample)
    return fired


@contextlib.contextmanager
def victoria_metrics(folder: Path) -> Iterator[VictoriaMetricsServer]:
    server = VictoriaMetricsServer(folder, arguments=("-search.disableCache",)).start()
    try:
        yield server
    finally:
        server.stop()


def load(server: VictoriaMetricsServer, began: int) -> None:
    """Every series with its samples."""
    lines = []
    for job, made in series().items():
        for one in made:
            # promtool's clock begins at 0.
            zero = began if one.metric.endswith("_timestamp_seconds") else 0
            values = [
                (sample, value + zero)
                for sample, value in enumerate(one.values)
                if isinstance(value, int | float)
            ]
            lines.append(
                json.dumps(
                    {
                        "metric": {"__name__": one.metric, "training_job": job, **one.labels},
                        "values": [value for _, value in values],
                        "timestamps": [1000 * (began + STEP * sample) for sample, _ in values],
                    }
                )
            )
    request = urllib.request.Request(
        f"{server.url}/api/v1/import", data="\n".join(lines).encode(), method="POST"
    )
    urllib.request.urlopen(request, timeout=60).close()
    server.flush()


def names_read(expression: str) -> set[str]:
    """Names of the series that it selects."""
    names: set[str] = set()

    def look(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            assert node.name is not None, expression
            names.add(node.name)

    promql_parser.walk(promql_parser.parse(expression), pre_visit=look)
    return names


def levels(content: dict[str, Any]) -> list[dict[str, Any]]:
    """The groups in parts: what a rule reads was written by an earlier part, or is written by a later one.

    Replay evaluates rule after rule, in the file's order, and a rule must find what those before it wrote.
    """
    written: dict[str, int] = {}
    read: dict[str, int] = {}
    parts: dict[int, dict[str, Any]] = {}
    for group in content["groups"]:
        for rule in group["rules"]:
            name, reads = rule.get("record", "ALERTS"), names_read(rule["expr"])
            level = 1 + max([written.get(one, 0) for one in reads] + [read.get(name, 0)])
            written[name] = max(level, written.get(name, 0))
            read |= {one: max(level, read.get(one, 0)) for one in reads}
            part = parts.setdefault(level, {}).setdefault(group["name"], group | {"rules": []})
            part["rules"].append(rule)
    return [{"groups": list(parts[level].values())} for level in sorted(parts)]


def replayed(folder: Path, server: VictoriaMetricsServer, part: dict[str, Any], times: Sequence[str]) -> None:
    """What vmalert makes of the rules at these times is in the server."""
    file = folder / "part.yaml"
    file.write_text(json.dumps(part), encoding="utf-8")
    done = subprocess.run(
        [
            "vmalert",
            f"-rule={file}",
            f"-datasource.url={server.url}",
            f"-remoteWrite.url={server.url}",
            f"-replay.timeFrom={times[0]}",
            f"-replay.timeTo={times[1]}",
            "-replay.rulesDelay=0s",
            f"-httpListenAddr=127.0.0.1:{free_port()}",
            f"-evaluationInterval={STEP}s",
            f"-datasource.queryStep={STEP}s",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "error" not in done.stderr, done.stderr[-3000:]
    server.flush()


def by_victoria_metrics(folder: Path, file: Path) -> Fired:
    """What vmalert's replay wrote as ALERTS."""
    began = int(time.time()) // 3600 * 3600 - 2 * 3600
    end = began + STEP * (SAMPLES - 1)
    with victoria_metrics(folder) as server:
        load(server, began)
        stamps = [time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)) for at in (began, end)]
        for part in levels(json.loads(file.read_text(encoding="utf-8"))):
            replayed(folder, server, part, stamps)
        selected = f"match[]=ALERTS%7Balertstate=%22firing%22%7D&start={began}&end={end}"
        with urllib.request.urlopen(f"{server.url}/api/v1/export?{selected}", timeout=60) as answer:
            found: list[dict[str, Any]] = [json.loads(line) for line in answer.read().splitlines()]
    return {
        labels_of(one["metric"]): (
            (min(one["timestamps"]) // 1000 - began) // STEP,
            (max(one["timestamps"]) // 1000 - began) // STEP,
        )
        for one in found
    }


def while_it_lasts(fired: Fired, ends: dict[str, int]) -> Fired:
    """Alerts that began before the data of their job ended, until then: after it the two look back
    differently far."""
    found: Fired = {}
    for alert, (first, last) in fired.items():
        end = next(end for job, end in ends.items() if f"training_job={job}" in alert)
        if first <= end:
            found[alert] = first, min(last, end)
    return found


def test_vmalert_fires_what_prometheus_fires(tmp_path: Path) -> None:
    """The same alerts, begun and ended at the same evaluations; and the exact rules fire them too.

    `make verify` has more worlds.
    """
    ends = {job: max(len(one.values) for one in made) - 1 for job, made in series().items()}
    portable = rules(tmp_path, "portable")
    expected = while_it_lasts(by_prometheus(tmp_path, portable), ends)
    assert len(expected) > (12 if LONG else 4)
    exact = while_it_lasts(by_prometheus(tmp_path, rules(tmp_path, "exact")), ends)
    assert exact.keys() == expected.keys()
    fired = while_it_lasts(by_victoria_metrics(tmp_path, portable), ends)
    assert fired.keys() == expected.keys()
    for alert, (first, last) in expected.items():
        name = alert.partition(",")[0].removeprefix("alertname=")
        assert first - EARLIER.get(name, LATER) <= fired[alert][0] <= first + LATER, alert
        assert abs(last - fired[alert][1]) <= LATER, alert
