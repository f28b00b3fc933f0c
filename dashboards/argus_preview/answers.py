"""Where what is drawn comes from: a Prometheus of the reader's, or a simulated fleet on a stage."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from argus_dashboards.inspection import queries
from argus_dashboards.probe import Source, Span, load, resolve
from argus_dashboards.theme import Json

Given = Mapping[str, Mapping[str, str]]
"""Values of variables by dashboard; '' holds for all."""


@dataclass(frozen=True)
class Scene:
    """A job to look at, and the variables that a reader would choose for it."""

    name: str
    given: Given

    def variables(self, uid: str) -> dict[str, str]:
        return {**self.given.get("", {}), **self.given.get(uid, {})}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", help="draw what this Prometheus holds")
    parser.add_argument("--end", type=float, help="Unix time at which the range ends (default: now)")
    parser.add_argument("--job", default="", help="with --url: the training job (default: the first)")
    parser.add_argument(
        "--ranks", type=int, default=256, help="of the simulated fleet (default: %(default)s)"
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="of history (default: %(default)s)")


@contextmanager
def opened(options: argparse.Namespace) -> Iterator[tuple[Source, list[Scene]]]:
    """The source that the options name, and its scenes: of a stage a faulty and a healthy job."""
    if options.url:
        given = {"": {"training_job": options.job}} if options.job else {}
        yield Source(options.url, Span(options.end or time.time())), [Scene(options.job or "job", given)]
        return
    # Only here: whoever draws a Prometheus of their own needs no simulator.
    from bench import dashboard_stage as stage

    with tempfile.TemporaryDirectory() as folder:
        size = stage.Size(ranks=options.ranks, seconds=60 * options.minutes)
        played = stage.build(Path(folder), size, _progress())
        try:
            source = Source(played.server.url, Span(played.end, size.seconds, size.every))
            yield (
                source,
                [
                    Scene("faulty", stage.variables(size)),
                    Scene("healthy", {"": {"training_job": stage.SMALL}}),
                ],
            )
        finally:
            played.server.stop()


def document(source: Source, uid: str, scene: Scene) -> Json:
    """A dashboard with all that Prometheus answers it, as the page of Grafana's components reads it."""
    dashboard = load(uid)
    values = resolve(source, dashboard, scene.variables(uid))
    answers = {}
    for query in queries(dashboard):
        if query.panel_id:
            answer = source.ask(query, values)
            answers[f"{query.panel_id}/{query.ref}"] = {"result": answer.result, "error": answer.error}
    span = source.span
    return {
        "dashboard": dashboard,
        "values": values,
        "answers": answers,
        "start": span.start,
        "end": span.end,
    }


def _progress() -> Callable[[str], None]:
    tty = sys.stderr.isatty()

    def say(text: str) -> None:
        if tty:
            print(f"\r{text:70}", end="", file=sys.stderr, flush=True)

    return say
