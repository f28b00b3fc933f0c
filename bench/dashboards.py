"""Every query of every dashboard against a real Prometheus: `python -m bench.dashboards`.

Twice: 1,024 ranks with everything that a bad afternoon brings, where no query may fail and no panel may be
empty that the scenario has something for; and 10,240 ranks, where each query is timed as a reader would wait
for it. The stage is bench.dashboard_stage: fleets of the fault lab, the rules, the L3 worker. Prints a table
and ends in one JSON line:

    panels, queries  how many were asked, variables and annotations included in the queries
    errors           queries that Prometheus refused
    empty            panels without any data, but for those in `NOTHING_TO_SHOW`
    slowest_s        longest answer to a query at the large size, seconds of wall time
    slowest_cpu_s    most CPU time that Prometheus took for one query, seconds: other work hardly moves it
    most_lines       most series that one query of a panel returned at the large size

The large fleet has an hour of samples, 30 s apart, and four kernels a rank; rules and worker spoke every
third of it (bench.dashboard_stage). Queries are over that hour. A query that took over a second is asked
again and the shorter time counts: what other work on the machine took is not the query's. About 4 minutes for
the small part and 10 for the large one on two quiet cores; progress goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "dashboards"))

from argus_dashboards.inspection import PanelQuery, panels, queries
from argus_dashboards.probe import Answer, Source, Span, all_uids, load, resolve
from bench import dashboard_stage
from bench.dashboard_stage import Size, Stage
from bench.servers import process_metric

SMALL = Size(ranks=1024)
LARGE = Size(ranks=10_240, kernel_pairs=4, job_every=1200.0, evaluate_every=1200.0, cycle_every=1200.0)
_SPAN_SECONDS = 3600.0
_ASKED_AGAIN_SECONDS = 1.0
_CPU = "process_cpu_seconds_total"

NOTHING_TO_SHOW = {
    ("argus-itself", "Not judged"),
    ("argus-itself", "Failures"),
    ("argus-itself", "Records lost, by channel and reason"),
    ("argus-itself", "annotation Alerts"),
    ("argus-job", "Exporter failures"),
    ("argus-job", "Cross-check: what GPU time consists of (EROICA)"),
    ("argus-job", "Groups that are not judged"),
    ("argus-job", "Records lost"),
    ("argus-job", "Suspect sets"),
    ("argus-job", "Timelines"),
    ("argus-rank", "Records lost"),
    ("argus-rank", "Bus bandwidth of collectives"),
}
"""What is rightly empty on this stage: every role and group is judged, nothing fails, no record is lost, no
rank's GPU time consists of other things by the 40 % that EROICA begins to see, no
phase of computation holds a wait, NCCL's plugin is off, the worker has no store of traces, and what ARGUS has
against itself are tickets."""


@dataclass(frozen=True)
class Asked:
    """One query of a dashboard with its answer."""

    uid: str
    answer: Answer
    cpu_seconds: float

    @property
    def place(self) -> tuple[str, str]:
        return self.uid, self.answer.query.panel


def _source(stage: Stage) -> Source:
    return Source(stage.server.url, Span(stage.end, _SPAN_SECONDS, stage.size.every))


def ask_all(stage: Stage) -> list[Asked]:
    """Every query of every dashboard, as a reader of the stage would have them asked."""
    source, given = _source(stage), dashboard_stage.variables(stage.size)
    asked = []
    for uid in all_uids():
        dashboard = load(uid)
        values = resolve(source, dashboard, given[""] | given.get(uid, {}))
        # Variables were asked to find their values, by the API that lists labels.
        asked += [
            _ask(stage, uid, query, values)
            for query in queries(dashboard)
            if not query.panel.startswith("variable ")
        ]
    return asked


def _ask(stage: Stage, uid: str, query: PanelQuery, values: Mapping[str, str]) -> Asked:
    def once() -> Asked:
        before = process_metric(stage.server, _CPU)
        answer = _source(stage).ask(query, values)
        return Asked(uid, answer, process_metric(stage.server, _CPU) - before)

    first = once()
    if first.answer.error or first.answer.seconds < _ASKED_AGAIN_SECONDS:
        return first
    return min(first, once(), key=lambda one: one.answer.seconds)


def refused(asked: Iterable[Asked]) -> list[str]:
    return [f"{one.place}: {one.answer.error}" for one in asked if one.answer.error]


def empty(asked: Iterable[Asked]) -> list[tuple[str, str]]:
    """Panels none of whose queries has an answer, though the scenario has something for them."""
    filled: dict[tuple[str, str], bool] = {}
    for one in asked:
        filled[one.place] = filled.get(one.place, False) or bool(one.answer.result)
    return [place for place, has in filled.items() if not has and place not in NOTHING_TO_SHOW]


def run(size: Size, say: Callable[[str], None]) -> list[Asked]:
    """Build a stage of a size and ask it everything."""
    with tempfile.TemporaryDirectory() as folder:
        stage = dashboard_stage.build(Path(folder), size, say)
        try:
            say(f"asking every query of every dashboard, {size.ranks} ranks")
            return ask_all(stage)
        finally:
            stage.server.stop()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=SMALL.ranks, help="0: leave this part out")
    parser.add_argument("--large", type=int, default=LARGE.ranks, help="0: leave this part out")
    options = parser.parse_args()

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    result: dict[str, object] = {
        "dashboards": len(all_uids()),
        "panels": sum(1 for uid in all_uids() for _ in panels(load(uid))),
        "queries": sum(1 for uid in all_uids() for _ in queries(load(uid))),
    }
    errors: list[str] = []
    if options.ranks:
        asked = run(Size(**{**SMALL.__dict__, "ranks": options.ranks}), say)
        errors, bare = refused(asked), empty(asked)
        for line in [*errors, *(f"{place}: no data" for place in bare)]:
            print(line)
        result |= {"ranks": options.ranks, "errors": len(errors), "empty": len(bare)}
    if options.large:
        asked = run(Size(**{**LARGE.__dict__, "ranks": options.large}), say)
        errors += refused(asked)
        ordered = sorted(asked, key=lambda one: -one.answer.seconds)
        print(f"{'slowest queries':78} {'lines':>6} {'s':>6} {'CPU s':>6}")
        for one in ordered[:15]:
            what = f"{one.uid}: {one.answer.query.panel} {one.answer.query.ref}"
            print(f"{what:78} {len(one.answer.result):6d} {one.answer.seconds:6.2f} {one.cpu_seconds:6.2f}")
        result |= {
            "large_ranks": options.large,
            "errors": len(errors),
            "slowest_s": round(ordered[0].answer.seconds, 2),
            "slowest_cpu_s": round(max(one.cpu_seconds for one in asked), 2),
            "slowest": ": ".join(ordered[0].place),
            "most_lines": max(len(one.answer.result) for one in asked),
        }
    print(json.dumps(result))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
