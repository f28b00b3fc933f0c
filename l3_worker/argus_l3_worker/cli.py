"""Command line of `argus-l3-worker`."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import hashlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from argus_core.settings import SettingsError, document, load
from argus_l3_worker import log
from argus_l3_worker.commands import diagnose, matrix
from argus_l3_worker.config import Config
from argus_l3_worker.durations import duration
from argus_l3_worker.errors import ArgusWorkerError, ConfigError
from argus_l3_worker.reports import doctor, report
from argus_l3_worker.serve import once, serve
from argus_l3_worker.telemetry import Telemetry
from argus_traces import command as trace_command
from argus_traces.errors import TraceError

# Flag, configuration key that it overrides, metavar.
_FLAGS: tuple[tuple[str, str, str], ...] = (
    ("--prometheus.url", "prometheus.url", "URL"),
    ("--remote-write.url", "write.url", "URL"),
    ("--cycle", "cycle_seconds", "DURATION"),
    ("--settle", "settle_seconds", "DURATION"),
    ("--history", "history_seconds", "DURATION"),
    ("--spool.dir", "write.spool_dir", "FOLDER"),
    ("--training-job", "training_job", "NAME"),
    ("--replica", "replica", "NAME"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status: 0 done, 1 failed, 2 wrong usage or configuration."""
    options = _parser().parse_args(arguments)
    log.configure(options.log_level)
    try:
        config = _configuration(options)
        if options.command == "serve":
            return asyncio.run(_serve(config, options))
        if options.command == "doctor":
            return _doctor(config, options)
        if options.command == "diagnose":
            return diagnose.run(options, config)
        if options.command == "matrix":
            return matrix.run(options, config)
        if options.command == "trace":
            return trace_command.run(options, config.traces.store)
        return asyncio.run(_once(config, options))
    except (ConfigError, SettingsError) as error:
        print(f"argus-l3-worker: {error}", file=sys.stderr)
        return 2
    except (ArgusWorkerError, TraceError) as error:
        print(f"argus-l3-worker: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="argus-l3-worker",
        description="Compare the kernel durations of all ranks, name the one that changed, write it back.",
        epilog="Configuration keys (--config, YAML):\n" + _keys(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--config", type=Path, metavar="FILE", help="YAML file; flags override its keys")
    help_texts = {key: f"{text} (default: {_shown(value)})" for key, _, value, text in document(Config)}
    for flag, key, metavar in _FLAGS:
        kind: Any = duration if metavar == "DURATION" else Path if metavar == "FOLDER" else str
        common.add_argument(flag, dest=key, type=kind, metavar=metavar, help=help_texts[key])
    common.add_argument(
        "--log.level",
        dest="log_level",
        default="info",
        choices=("debug", "info", "warning", "error"),
        help="least severity of log lines on stderr (default: info)",
    )
    server = commands.add_parser(
        "serve", parents=[common], help="judge on a grid until stopped; /metrics and /healthz"
    )
    server.add_argument(
        "--web.listen-address",
        dest="web.listen_address",
        metavar="HOST:PORT",
        help=help_texts["web.listen_address"],
    )
    single = commands.add_parser(
        "once", parents=[common], help="judge the last windows once and print what was found"
    )
    single.add_argument(
        "--time",
        type=float,
        metavar="UNIX",
        help="judge what Prometheus held at this Unix time (default: now)",
    )
    single.add_argument("--json", action="store_true", help="print JSON instead of a table")
    single.add_argument("--no-write", action="store_true", help="write nothing back")
    examined = commands.add_parser(
        "doctor", parents=[common], help="check all that the worker needs, with a remedy for what is missing"
    )
    examined.add_argument("--json", action="store_true", help="print JSON instead of a table")
    diagnose.add_arguments(
        commands.add_parser(
            "diagnose", parents=[common], help="report what happened to a job, why, and what to do about it"
        )
    )
    matrix.add_arguments(
        commands.add_parser(
            "matrix",
            parents=[common],
            help="draw how far the ranks' durations of one kernel lie from one another",
        )
    )
    trace_command.add_arguments(
        commands.add_parser(
            "trace",
            parents=[common],
            help="say from the traces of several ranks where the time went, and who is to blame",
        )
    )
    return parser


def _keys() -> str:
    return "\n".join(
        f"  {key}: {text} (default: {_shown(value)})" for key, _, value, text in document(Config)
    )


def _shown(value: object) -> str:
    return "none" if value in (None, "") else str(value)


def _configuration(options: argparse.Namespace) -> Config:
    config: Any = load(Config, options.config)
    for key, value in vars(options).items():
        if value is not None and (key in {k for _, k, _ in _FLAGS} or key == "web.listen_address"):
            config = _override(config, key, value)
    if config.write.spool_dir is None:
        config = _override(config, "write.spool_dir", _state_folder())
    if config.write.spool_dir is not None:
        # Requests for one receiver must never be replayed to another.
        receiver = hashlib.sha256(config.write_url.encode()).hexdigest()[:12]
        config = _override(config, "write.spool_dir", config.write.spool_dir / receiver)
    result: Config = config
    return result


def _override(config: Any, key: str, value: object) -> Any:
    head, _, rest = key.partition(".")
    try:
        return dataclasses.replace(
            config, **{head: _override(getattr(config, head), rest, value) if rest else value}
        )
    except ValueError as error:
        raise ConfigError(f"command line: {error}") from error


def _state_folder() -> Path | None:
    """Where state goes by convention, if the system names a place: systemd, then XDG; else in memory."""
    for variable in ("STATE_DIRECTORY", "XDG_STATE_HOME"):
        if folder := os.environ.get(variable):
            return Path(folder.split(":")[0]) / "argus-l3-worker" / "spool"
    return None


async def _serve(config: Config, options: argparse.Namespace) -> int:
    stop, reload = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, reload.set)
    await serve(config, Telemetry(), stop, reload, lambda: _configuration(options))
    return 0


async def _once(config: Config, options: argparse.Namespace) -> int:
    at = float(int(time.time())) if options.time is None else options.time
    found = await once(config, at, Telemetry(), write=not options.no_write)
    sys.stdout.write(report.as_json(found) + "\n" if options.json else report.table(found))
    if found.delivered is False:
        print("argus-l3-worker: nothing was written back, see the log above", file=sys.stderr)
        return 1
    return 0


def _doctor(config: Config, options: argparse.Namespace) -> int:
    checks = asyncio.run(doctor.examine(config))
    sys.stdout.write(doctor.as_json(checks) + "\n" if options.json else doctor.table(checks))
    return 0 if doctor.healthy(checks) else 1
