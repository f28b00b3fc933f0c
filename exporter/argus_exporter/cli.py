"""`argus-exporter`: the exporter of a GPU host, and how people try ARGUS on data they have."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from argus_core import catalogue
from argus_core.link import default_socket_path
from argus_core.settings import SettingsError, document, load
from argus_exporter.commands import budget, replay, run, trace
from argus_exporter.config import ExporterConfig
from argus_exporter.errors import ArgusExporterError
from argus_exporter.server import installed_version, parse_listen_address, serve


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. 0: done; 2: bad input, said in one line; `run` returns its command's status."""
    parser = _parser()
    args = parser.parse_args(arguments)
    logging.basicConfig(
        level=getattr(logging, args.log_level.upper()),
        format="time=%(asctime)s level=%(levelname)s logger=%(name)s %(message)s",
        stream=sys.stderr,
    )
    try:
        status: int = args.handler(args)
    except (ArgusExporterError, SettingsError) as error:
        print(f"argus-exporter: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output went away (`... | head`): not an error of ours.
        sys.stderr.close()
        return 141
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="argus-exporter",
        description="Watches the ranks of a training job on this host for Prometheus.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {installed_version()}")
    parser.add_argument(
        "--log.level",
        dest="log_level",
        default="info",
        choices=("debug", "info", "warning", "error"),
        help="least severe log lines to write to stderr (default: %(default)s)",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    serve_parser = commands.add_parser("serve", help="run the exporter of this host until SIGTERM or Ctrl-C")
    _add_server_options(serve_parser)
    serve_parser.add_argument(
        "--help-config", action="store_true", help="print every key of the configuration file and exit"
    )
    serve_parser.set_defaults(handler=_serve)

    run_parser = commands.add_parser(
        "run",
        help="run a training command with ARGUS attached",
        usage="argus-exporter run [options] -- COMMAND [ARGUMENT ...]",
        description="Runs COMMAND with ARGUS attached to every rank it starts. Uses the exporter that "
        "listens on the socket, or starts one for the time of the command. Returns COMMAND's exit status.",
    )
    run_parser.add_argument(
        "--socket", type=Path, help="socket of the exporter (default: $ARGUS_SOCKET or a private folder)"
    )
    run_parser.add_argument(
        "--web.listen-address",
        dest="listen_address",
        default=":9877",
        metavar="HOST:PORT",
        help="where an exporter started here serves /metrics (default: %(default)s)",
    )
    run_parser.add_argument(
        "--job", help="name of the training job (default: from the scheduler or the script)"
    )
    run_parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    run_parser.set_defaults(handler=_run)

    replay_parser = commands.add_parser(
        "replay",
        help="read recorded traces: print a summary, or serve them as if they happened now",
        description="Reads PyTorch profiler (Kineto) JSON or Nsight Systems exports to SQLite, one file a "
        "rank, or the ARGUS event log (docs/event-log.md), and prints a summary or serves it "
        "(docs/import.md). Exit status: 0 done; 2 a file or option cannot be used, said in one line; "
        "130 interrupted.",
    )
    replay.add_arguments(replay_parser)
    replay_parser.set_defaults(handler=replay.run)

    trace_parser = commands.add_parser(
        "trace", help="turn files of other tools into traces for Perfetto; list and fetch stored traces"
    )
    trace.add_arguments(trace_parser)

    budget_parser = commands.add_parser(
        "budget", help="say how many series a fleet makes, and what Prometheus needs for them"
    )
    budget.add_arguments(budget_parser)
    budget_parser.set_defaults(handler=budget.run)

    catalogue_parser = commands.add_parser(
        "catalogue", help="list every metric family, its type, labels and meaning"
    )
    catalogue_parser.add_argument("--json", action="store_true", help="as JSON, for machines")
    catalogue_parser.set_defaults(handler=_catalogue)
    return parser


def _add_server_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="configuration file (YAML); see --help-config"
    )
    parser.add_argument("--socket", type=Path, metavar="PATH", help="overrides socket.path")
    parser.add_argument(
        "--web.listen-address",
        dest="listen_address",
        metavar="HOST:PORT",
        help="overrides web.listen_address",
    )
    parser.add_argument(
        "--web.config.file", dest="web_config", type=Path, metavar="FILE", help="overrides web.config_file"
    )
    parser.add_argument(
        "--sd.file", dest="sd_file", type=Path, metavar="FILE", help="overrides discovery.file"
    )


def _server_config(args: argparse.Namespace) -> ExporterConfig:
    config = load(ExporterConfig, args.config)
    if args.socket is not None:
        config = dataclasses.replace(config, socket=dataclasses.replace(config.socket, path=args.socket))
    web = config.web
    if args.listen_address is not None:
        web = dataclasses.replace(web, listen_address=args.listen_address)
    if args.web_config is not None:
        web = dataclasses.replace(web, config_file=args.web_config)
    config = dataclasses.replace(config, web=web)
    if args.sd_file is not None:
        config = dataclasses.replace(
            config, discovery=dataclasses.replace(config.discovery, file=args.sd_file)
        )
    parse_listen_address(config.web.listen_address)
    return config


def _serve(args: argparse.Namespace) -> int:
    if args.help_config:
        for key, allowed, default, help_ in document(ExporterConfig):
            shown = "none" if default in (None, "", (), {}) else default
            print(f"{key} ({allowed}; default {shown})\n    {help_}")
        return 0
    asyncio.run(serve(_server_config(args), lambda: _server_config(args)))
    return 0


def _run(args: argparse.Namespace) -> int:
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    return run.run(
        command,
        socket=args.socket or default_socket_path(),
        listen_address=args.listen_address,
        job=args.job,
    )


def _catalogue(args: argparse.Namespace) -> int:
    families = catalogue.CATALOGUE
    if args.json:
        print(json.dumps([dataclasses.asdict(family) for family in families], indent=2))
        return 0
    for family in families:
        labels = ", ".join((*family.labels, *(f"[{name}]" for name in family.optional_labels)))
        print(f"{family.name} ({family.type}; {labels or 'no labels'})\n    {family.help}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
