"""`argus-l3-worker serve`: judge until told to stop."""

from __future__ import annotations

import argparse
import asyncio
import signal

from argus_core.config_flags import Flag
from argus_l3_worker.flags import add_flags, configuration
from argus_l3_worker.serve import serve
from argus_l3_worker.telemetry import Telemetry


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_flags(parser, Flag("--web.listen-address", "web.listen_address", "HOST:PORT"))


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C; SIGHUP reads the configuration again."""
    asyncio.run(_serve(options))
    return 0


async def _serve(options: argparse.Namespace) -> None:
    stop, reload = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, reload.set)
    await serve(configuration(options), Telemetry(), stop, reload, lambda: configuration(options))
