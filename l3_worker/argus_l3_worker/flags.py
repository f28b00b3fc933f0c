"""The flags that every command of the worker has, and the configuration that they make with the file."""

from __future__ import annotations

import argparse
import hashlib
import os
from dataclasses import replace
from pathlib import Path

from argus_core.config_flags import Flag, add_config, read_config
from argus_core.option_types import duration
from argus_l3_worker.config import Config

_FLAGS = (
    Flag("--prometheus.url", "prometheus.url", "URL"),
    Flag("--remote-write.url", "write.url", "URL"),
    Flag("--cycle", "cycle_seconds", "DURATION", duration),
    Flag("--settle", "settle_seconds", "DURATION", duration),
    Flag("--history", "history_seconds", "DURATION", duration),
    Flag("--spool.dir", "write.spool_dir", "FOLDER", Path),
    Flag("--training-job", "training_job", "NAME"),
    Flag("--worker", "worker", "NAME"),
)


def add_flags(parser: argparse.ArgumentParser, *more: Flag) -> None:
    """Those of all commands, and `more` of this one."""
    add_config(parser, Config, (*_FLAGS, *more))


def configuration(options: argparse.Namespace) -> Config:
    """What file and flags say.

    Raises:
        SettingsError: one of them cannot be used.
    """
    config = read_config(Config, options)
    spool = config.write.spool_dir or _state_folder()
    if spool is None:
        return config
    # Requests for one receiver must never be replayed to another.
    receiver = hashlib.sha256(config.write_url.encode()).hexdigest()[:12]
    return replace(config, write=replace(config.write, spool_dir=spool / receiver))


def _state_folder() -> Path | None:
    """Where state goes by convention, if the system names a place: systemd, then XDG; else in memory."""
    for variable in ("STATE_DIRECTORY", "XDG_STATE_HOME"):
        if folder := os.environ.get(variable):
            return Path(folder.split(":")[0]) / "argus-l3-worker" / "spool"
    return None
