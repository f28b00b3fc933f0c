"""`argus-exporter serve`: the exporter of a host."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from argus_core.config_flags import Flag, add_config, read_config
from argus_exporter.config import ExporterConfig
from argus_exporter.server import parse_listen_address, serve

_FLAGS = (
    Flag("--socket", "socket.path", "PATH", Path),
    Flag("--web.listen-address", "web.listen_address", "HOST:PORT"),
    Flag("--web.config.file", "web.config_file", "FILE", Path),
    Flag("--sd.file", "discovery.file", "FILE", Path),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser, ExporterConfig, _FLAGS)


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""

    def configuration() -> ExporterConfig:
        config = read_config(ExporterConfig, options)
        parse_listen_address(config.web.listen_address)
        return config

    asyncio.run(serve(configuration(), configuration))
    return 0
