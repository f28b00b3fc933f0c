"""`argus-exporter replay`: recordings in, a summary or a served recording out."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import math
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import repeat
from pathlib import Path
from typing import Final

from argus_core.config_flags import Flag, add_config, read_config
from argus_core.option_types import number, whole_number
from argus_exporter.config import ExporterConfig
from argus_exporter.errors import ArgusExporterError
from argus_exporter.intake.config import SocketConfig
from argus_exporter.intake.listener import is_listening
from argus_exporter.replay.player import Player, play
from argus_exporter.replay.progress import shown
from argus_exporter.replay.reader import read_files
from argus_exporter.replay.recording import RankRecording
from argus_exporter.replay.resample import endless, resample
from argus_exporter.replay.summary import as_json, as_text, summarise_rank
from argus_exporter.server import running_exporter

_PROGRESS_S: Final = 10.0
_TERMINAL_PROGRESS_S: Final = 1.0
_COUNT: Final = whole_number(1, 100_000)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Reads PyTorch profiler (Kineto) JSON or Nsight Systems exports to SQLite, one file a rank, or the "
        "ARGUS event log (docs/event-log.md), and prints a summary or serves it (docs/import.md)."
    )
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="PyTorch profiler trace or Nsight Systems SQLite export of one rank, or event log; the content "
        "tells which",
    )
    parser.add_argument("--job", help="name of the training job (default: the log's, or the file's folder)")
    parser.add_argument(
        "--assume-ranks",
        action="store_true",
        help="number the traces 0, 1, ... in the order given, whatever they say themselves",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress; on stderr only what went wrong")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON, for machines")
    parser.add_argument(
        "--top", type=_COUNT, default=5, metavar="N", help="kernels a rank to show (default: %(default)s)"
    )

    serving = parser.add_argument_group("serving")
    serving.add_argument(
        "--serve", action="store_true", help="play the recording to an exporter as if it happened now"
    )
    serving.add_argument(
        "--speed",
        type=number(zero=True),
        default=1.0,
        metavar="FACTOR",
        help="recorded seconds a second; durations stay as recorded; 0: everything at once, then stay "
        "(default: %(default)s)",
    )
    serving.add_argument(
        "--loop", action="store_true", help="repeat until Ctrl-C; steps and time go on from pass to pass"
    )
    serving.add_argument(
        "--keep", action="store_true", help="after the end keep serving the last state until Ctrl-C"
    )
    serving.add_argument(
        "--to-socket",
        type=Path,
        metavar="PATH",
        help="play to the exporter that listens here instead of starting one",
    )
    add_config(parser, ExporterConfig, [Flag("--web.listen-address", "web.listen_address", "HOST:PORT")])

    resampling = parser.add_argument_group(
        "resampling",
        "Makes a larger job from real traces: the kernels of one recorded step, durations drawn anew.",
    )
    resampling.add_argument("--resample-ranks", type=_COUNT, metavar="N", help="how many ranks to make")
    resampling.add_argument(
        "--resample-steps",
        type=_COUNT,
        default=64,
        metavar="N",
        help="steps of one pass; with --loop each pass is drawn anew (default: %(default)s)",
    )
    resampling.add_argument(
        "--stretch",
        type=_stretch,
        action="append",
        default=[],
        metavar="RANK=FACTOR",
        help="injection into a real trace: compute kernels of this rank last longer by this factor; "
        "repeatable",
    )
    resampling.add_argument(
        "--seed", type=whole_number(), default=0, help="of all random numbers (default: %(default)s)"
    )


def run(options: argparse.Namespace) -> int:
    """Read the files, then summarise or serve.

    Raises:
        ArgusExporterError: what cannot be used, in one line.
    """
    _check(options)
    with shown(options.files, sys.stderr, quiet=options.quiet) as progress:
        recordings = read_files(
            options.files, job=options.job, assume_ranks=options.assume_ranks, progress=progress
        )
    if options.serve:
        asyncio.run(_serve(options, recordings))
        return 0
    (fleet,) = _passes(options, recordings, loop=False)
    summaries = [summarise_rank(recording, options.top) for recording in fleet]
    if options.json:
        print(json.dumps(as_json(summaries), indent=2))
    else:
        print(as_text(summaries, options.top))
    return 0


def _check(options: argparse.Namespace) -> None:
    stretched = dict(options.stretch)
    if options.stretch and options.resample_ranks is None:
        raise ArgusExporterError("--stretch needs --resample-ranks N: only a resampled trace is changed")
    if options.resample_ranks is not None and stretched and max(stretched) >= options.resample_ranks:
        raise ArgusExporterError(
            f"--stretch names rank {max(stretched)}; allowed with --resample-ranks {options.resample_ranks}: "
            f"0 to {options.resample_ranks - 1}"
        )
    for option in ("loop", "keep", "to_socket"):
        if getattr(options, option) and not options.serve:
            raise ArgusExporterError(f"--{option.replace('_', '-')} needs --serve")
    if options.loop and options.speed == 0:
        raise ArgusExporterError("--loop at --speed 0 would never sleep; allowed: a speed above 0")


def _passes(
    options: argparse.Namespace, recordings: Sequence[RankRecording], *, loop: bool
) -> Iterable[Sequence[RankRecording]]:
    if options.resample_ranks is None:
        return repeat(recordings) if loop else [recordings]
    ranks, steps, seed = options.resample_ranks, options.resample_steps, options.seed
    stretch = dict(options.stretch)
    if loop:
        return endless(recordings, ranks=ranks, steps=steps, seed=seed, stretch=stretch)
    return [resample(recordings, ranks=ranks, steps=steps, seed=seed, stretch=stretch)]


async def _serve(options: argparse.Namespace, recordings: Sequence[RankRecording]) -> None:
    stay = options.keep or options.speed == 0
    async with _exporter(options, recordings) as (socket, where):
        player = Player(
            _passes(options, recordings, loop=options.loop), socket, speed=options.speed, stay=stay
        )
        loop = asyncio.get_running_loop()
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(one, player.stop)
        count = options.resample_ranks or len(recordings)
        job = recordings[0].identity.training_job
        made = f", resampled with seed {options.seed}" if options.resample_ranks else ""
        for rank, factor in options.stretch:
            made += f", compute kernels of rank {rank} x{factor:g} (injected into a real trace)"
        speed = f"at speed {options.speed:g}" if options.speed else "at once"
        _say(f"replaying {count} ranks of {job} {speed}{made}: {where}", quiet=options.quiet)
        reporter = asyncio.create_task(_report(player, stay=stay, quiet=options.quiet))
        try:
            progress = await play(player)
        finally:
            reporter.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reporter
        dropped = f", {progress.dropped:,} records dropped" if progress.dropped else ""
        _say(
            f"ended after step {progress.step}, {progress.kernels:,} kernel records{dropped}",
            quiet=options.quiet,
        )


def _longest_window(recordings: Sequence[RankRecording], seconds: float) -> int | None:
    """Steps of the longest aligned window inside a recording that is too short for a window of `seconds`.

    A profiler trace holds a handful of steps; None where the usual length fits.
    """
    first = max((int(r.iterations["step"].min()) for r in recordings if len(r.iterations)), default=0)
    last = min((int(r.iterations["step"].max()) for r in recordings if len(r.iterations)), default=-1)
    if last < first or min(r.end_ns - r.begin_ns for r in recordings) > 3e9 * seconds:
        return None
    lengths = (1 << power for power in reversed(range((last - first + 1).bit_length())))
    return next(length for length in lengths if last // length * length - length + 1 >= first)


@contextlib.asynccontextmanager
async def _exporter(
    options: argparse.Namespace, recordings: Sequence[RankRecording]
) -> AsyncIterator[tuple[Path, str]]:
    """Socket to play to, and where its metrics are."""
    if options.to_socket is not None:
        if not is_listening(options.to_socket):
            raise ArgusExporterError(
                f"--to-socket {options.to_socket}: no exporter listens there; start one with "
                f"`argus-exporter serve --socket {options.to_socket}`, or leave the option out"
            )
        yield options.to_socket, f"the exporter at {options.to_socket}"
        return
    config = read_config(ExporterConfig, options)
    if config.windows.steps is None and not options.loop and options.resample_ranks is None:
        steps = _longest_window(recordings, config.windows.seconds)
        config = dataclasses.replace(config, windows=dataclasses.replace(config.windows, steps=steps))
    tick = max(recording.tick_seconds for recording in recordings)
    if options.resample_ranks is None and tick > config.modes.tick_seconds:  # resampling spreads ticks itself
        config = dataclasses.replace(config, modes=dataclasses.replace(config.modes, tick_seconds=tick))
    # A socket of its own: a replay must not meet the producers of a real job on this host.
    with tempfile.TemporaryDirectory(prefix="argus-replay-") as folder:
        config = dataclasses.replace(config, socket=SocketConfig(Path(folder) / "exporter.sock"))
        async with running_exporter(config) as exporter:
            yield exporter.socket, f"{exporter.url}/metrics"


async def _report(player: Player, *, stay: bool, quiet: bool) -> None:
    """Say on stderr how far it is: often in one line on a terminal, seldom in a log."""
    terminal = sys.stderr.isatty()
    ended = False
    while not quiet:
        await asyncio.sleep(_TERMINAL_PROGRESS_S if terminal else _PROGRESS_S)
        progress = player.progress
        if player.finished and stay:
            if not ended:
                _say("the recording has ended; serving its last state until Ctrl-C")
            ended = True
            continue
        late = f", {progress.behind_s:.1f} s behind: lower --speed" if progress.behind_s > 1 else ""
        dropped = f", {progress.dropped:,} records dropped" if progress.dropped else ""
        text = f"step {progress.step}, {progress.kernels:,} kernel records{late}{dropped}"
        if terminal:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
        else:
            _say(text)


def _say(text: str, *, quiet: bool = False) -> None:
    if quiet:
        return
    start = "\r\x1b[K" if sys.stderr.isatty() else ""
    print(f"{start}argus-exporter: {text}", file=sys.stderr, flush=True)


def _stretch(text: str) -> tuple[int, float]:
    rank, equals, factor = text.partition("=")
    try:
        value = float(factor)
    except ValueError:
        value = math.nan
    if not (equals and rank.isascii() and rank.isdecimal() and len(rank) < 8 and 0.01 <= value <= 100):
        raise argparse.ArgumentTypeError(
            f"{text!r}; allowed: RANK=FACTOR with a factor of 0.01 to 100, as in 3=1.2"
        )
    return int(rank), value
