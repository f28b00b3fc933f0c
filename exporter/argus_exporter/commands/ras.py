"""`argus-exporter ras`: what NCCL itself says of a job: who is gone, who has launched less than others."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any, Final

from argus_exporter.errors import ArgusExporterError
from argus_exporter.ras.client import Address, RasClient
from argus_exporter.ras.json_answer import parse_json
from argus_exporter.ras.process import JobProcess, process_of
from argus_exporter.ras.report import Report, stuck, waited_for
from argus_exporter.ras.shown import shown, shown_stuck
from argus_exporter.ras.text_answer import parse_text

AGAIN_AFTER_S: Final = 15.0
"""Between two questions: what asks more often loads RAS's threads in all processes of the job."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Asks NCCL's RAS service, which runs in every process of a job since NCCL 2.24: which ranks are "
        "dead, do not answer or are missing from a communicator, and how many operations of each function "
        "every rank has launched. Nothing is injected. NCCL older than 2.28.7 is not asked: that has crashed "
        "jobs. Exit status: 0 there is an answer, whatever it says; 1 there is none; 2 it cannot be asked."
    )
    parser.add_argument("--pid", type=int, metavar="PID", help="a process of the job on this host")
    parser.add_argument(
        "--communicator",
        type=_hash,
        metavar="HASH",
        help="take only an answer that has this communicator (0x...), where no process of the job is here",
    )
    parser.add_argument(
        "--address",
        type=_address,
        metavar="HOST:PORT",
        help="where RAS listens (default: NCCL_RAS_ADDR of the process, else localhost:28028)",
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help=f"ask again after {AGAIN_AFTER_S:.0f} s, and say where nothing was launched in between",
    )
    parser.add_argument(
        "--unsafe", action="store_true", help="also ask NCCL older than 2.28.7, which can crash the job"
    )
    parser.add_argument(
        "--answer",
        type=Path,
        metavar="FILE",
        help="ask nobody; read what ncclras printed (-: standard input)",
    )
    parser.add_argument("--json", action="store_true", help="as JSON, for machines")


def run(options: argparse.Namespace) -> int:
    """Ask and print.

    Raises:
        RasFailed: there is no answer.
        RasRefused: nobody is asked.
        ArgusExporterError: options that do not go together, or a file that cannot be read.
    """
    if options.answer is not None:
        if options.again or any(
            one is not None for one in (options.pid, options.communicator, options.address)
        ):
            raise ArgusExporterError(
                "--answer asks nobody: leave out --pid, --communicator, --address, --again"
            )
        _print(_kept(options.answer), None, options.json)
        return 0
    process = None if options.pid is None else process_of(options.pid)
    if process is not None:
        process.refuse_unsafe(options.unsafe)
    client = RasClient(_address_of(options.address, process), options.unsafe)
    checked = process is not None or options.communicator is not None

    def is_own(report: Report) -> bool:
        hashes = {one.hash for one in report.communicators}
        has_communicator = options.communicator is None or options.communicator in hashes
        return has_communicator and (process is None or process.is_named_by(report))

    answer, before = client.ask(is_own), None
    if options.again:
        before = answer.report
        time.sleep(AGAIN_AFTER_S)
        answer = client.ask(is_own)
    if not (checked and answer.is_own):
        why = "it is text, which names outliers only" if checked else "name its process by --pid"
        print(f"argus-exporter: whose job answered at {client.address} is not known: {why}", file=sys.stderr)
    _print(answer.report, before, options.json)
    return 0


def _address_of(given: Address | None, process: JobProcess | None) -> Address:
    if given is not None:
        return given
    return Address() if process is None else process.reachable()


def _kept(path: Path) -> Report:
    try:
        text = sys.stdin.read() if path == Path("-") else path.read_text(errors="replace")
    except OSError as error:
        raise ArgusExporterError(f"--answer {path} cannot be read: {error.strerror}") from error
    return parse_json(text) if text.lstrip().startswith("{") else parse_text(text)


def _print(report: Report, before: Report | None, as_json: bool) -> None:
    if as_json:
        print(json.dumps(_plain(report, before), indent=2))
        return
    print("\n".join(shown(report)))
    if before is not None:
        print("\n" + "\n".join(shown_stuck(before, report, AGAIN_AFTER_S)))
    elif any(one.behind() for one in report.communicators):
        print("\nCounts of a running job differ for moments: --again tells whether they move.")


def _plain(report: Report, before: Report | None) -> dict[str, Any]:
    """For JSON: hashes as NCCL writes them, as 64 bits are more than many readers of JSON have."""
    plain = dataclasses.asdict(report)
    for one, entry in zip(report.communicators, plain["communicators"], strict=True):
        entry["hash"] = f"{one.hash:#x}"
        entry["behind"] = one.behind()
    if before is not None:
        plain["stuck"] = [f"{one.hash:#x}" for one in stuck(before, report)]
        plain["waited_for"] = [
            dataclasses.asdict(place) | {"lacks": lacks}
            for place, lacks in waited_for(before, report).items()
        ]
    return plain


def _hash(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no hash, such as 0x514e98cf4e44862b") from error


def _address(text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
