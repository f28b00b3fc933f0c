"""`argus-l3-worker trace KEY...`: from files or keys of the store to an answer."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from argus_core.errors import UserError
from argus_core.store.base import ObjectStore, StoreMissing
from argus_core.store.config import StoreConfig, default_folder, open_store
from argus_core.store.keys import SUFFIX, TraceKey, WrongKey, of_one_step
from argus_l3_worker.flags import add_flags, configuration
from argus_l3_worker.reports.patterns import unlike_functions
from argus_traces import report
from argus_traces.blame import Blame, blame
from argus_traces.marked import write_marked
from argus_traces.reader import read
from argus_traces.summary import summarise
from argus_traces.tables import RankTrace

_CHUNK: Final = 1 << 20

Source = tuple[str, Callable[[], Iterable[bytes]]]
"""Name for messages, and the bytes, as often as they are asked for."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "keys",
        nargs="+",
        metavar="KEY",
        help="a local file, a key of the store, or the beginning of keys, such as job/2026-11-21/3/",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument(
        "--details", action="store_true", help="add phases, streams and functions of each rank"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write all ranks and the marked chain as one Perfetto file"
    )
    parser.add_argument(
        "--step",
        type=int,
        metavar="STEP",
        help="begin at the end of this step instead of the last one's",
    )
    parser.add_argument(
        "--rank",
        type=int,
        metavar="RANK",
        help="begin at what ended last on this rank (in --step): why was it late?",
    )
    add_flags(parser)


def run(options: argparse.Namespace) -> int:
    """Print the answer.

    Raises:
        UserError: keys, files or options that cannot be used.
        TraceError: a trace cannot be fetched or read.
    """
    config = configuration(options)
    sources = _sources(options.keys, config.traces.store, options.step)
    if options.out is not None:
        _require_not_read(options.out, sources, config.traces.store)
    traces = [read(chunks(), name) for name, chunks in sources]
    order = sorted(range(len(traces)), key=lambda position: traces[position].window.rank)
    traces, sources = [traces[position] for position in order], [sources[position] for position in order]
    _check(traces)
    answer = _for_teams(_blame(traces, options), config.teams) if len(traces) > 1 else None
    summaries = [summarise(trace) for trace in traces]
    unlike = unlike_functions(summaries, [trace.window.role for trace in traces])
    if options.json:
        sys.stdout.write(report.as_json(answer, summaries, unlike) + "\n")
    else:
        sys.stdout.write(report.text(answer, summaries, unlike, details=options.details))
    if options.out is not None:
        if answer is None:
            raise UserError("--out marks the chain between ranks: give the traces of at least two")
        try:
            with options.out.open("wb") as target:
                write_marked(target, answer, sources)
        except OSError as error:
            raise UserError(f"{options.out} cannot be written: {error.strerror}") from error
    return 0


def _blame(traces: list[RankTrace], options: argparse.Namespace) -> Blame:
    if options.rank is None and options.step is None:
        return blame(traces)
    ranks = [trace.window.rank for trace in traces]
    if options.rank is not None and options.rank not in ranks:
        raise UserError(
            f"--rank is {options.rank}; allowed: {', '.join(map(str, ranks))}, whose traces are given"
        )
    return blame(traces, rank=options.rank, step=options.step)


def _for_teams(answer: Blame, teams: Mapping[str, str]) -> Blame:
    """With the teams that the configuration names, where it does."""
    findings = (replace(one, team=teams.get(one.cause, one.team)) for one in answer.findings)
    return replace(answer, findings=tuple(findings))


def _check(traces: list[RankTrace]) -> None:
    jobs = {trace.window.training_job for trace in traces}
    if len(jobs) > 1:
        raise UserError(f"traces of several jobs cannot be compared: {', '.join(sorted(jobs))}")
    seen: dict[int, str] = {}
    for trace in traces:
        if trace.window.rank in seen:
            raise UserError(
                f"{seen[trace.window.rank]} and {trace.source} are both of rank {trace.window.rank}: give "
                "one window a rank"
            )
        seen[trace.window.rank] = trace.source
    windows = [trace.window for trace in traces if trace.window.first_step >= 0]
    # Who is compared with what others did at another time is to blame for anything.
    if windows and max(one.first_step for one in windows) > min(one.last_step for one in windows):
        steps = ", ".join(f"rank {one.rank} {one.first_step} to {one.last_step}" for one in windows)
        raise UserError(f"traces without a step in common cannot be compared: {steps}")


def _require_not_read(out: Path, sources: list[Source], store: StoreConfig) -> None:
    """The file is written while they are read once more: the trace of a fault is seldom made twice."""
    folder = store.folder or default_folder()
    places = [place for name, _ in sources for place in (Path(name), folder / name)]
    if out.exists() and any(place.exists() and place.samefile(out) for place in places):
        raise UserError(f"--out {out} is one of the traces that are read: name another file")


def _sources(keys: list[str], config: StoreConfig, step: int | None) -> list[Source]:
    files = [key for key in keys if Path(key).is_file()]
    others = [key for key in keys if key not in files]
    sources: list[Source] = [(key, _of_file(Path(key))) for key in files]
    if not others:
        return sources
    store = open_store(config)
    whole = [_existing(store, key) for key in others if key.endswith(SUFFIX)]
    beginnings = [key for key in others if not key.endswith(SUFFIX)]
    chosen = _windows(store, beginnings, step) if beginnings else []
    return sources + [(name, partial(store.get, name)) for name in whole + chosen]


def _windows(store: ObjectStore, beginnings: list[str], step: int | None) -> list[str]:
    found = {key: name for beginning in beginnings for key, name in _keys_of(store, beginning).items()}
    chosen = of_one_step(found, step)
    if not chosen:
        raise UserError(f"no trace in {store.name} that begins so has step {step}")
    left_out = {one.rank for one in found} - {one.rank for one in chosen}
    if left_out:
        ranks = ", ".join(map(str, sorted(left_out)))
        print(f"left out, as no window of theirs has the step of the others: ranks {ranks}", file=sys.stderr)
    return [found[key] for key in chosen]


def _existing(store: ObjectStore, key: str) -> str:
    with _said(store, key):
        store.head(key)
    return key


def _keys_of(store: ObjectStore, beginning: str) -> dict[TraceKey, str]:
    found = {}
    with _said(store, beginning):
        for one in store.list(beginning):
            with suppress(ValueError):  # no trace of ARGUS
                found[TraceKey.parse(one.key)] = one.key
    if not found:
        raise UserError(f"no trace in {store.name} begins with {beginning}")
    return found


@contextmanager
def _said(store: ObjectStore, key: str) -> Iterator[None]:
    try:
        yield
    except StoreMissing as error:
        raise UserError(f"{key} is neither a file nor in {store.name}") from error
    except WrongKey as error:
        raise UserError(f"{key} is no file, and cannot be in {store.name}: {error}") from error


def _of_file(path: Path) -> Callable[[], Iterator[bytes]]:
    def chunks() -> Iterator[bytes]:
        try:
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    yield chunk
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from error

    return chunks
