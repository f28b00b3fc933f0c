"""SIGHUP: which settings of a new configuration a running worker takes over. No I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from argus_l3_worker.config import Config

_OF_WRITE = ("url", "spool_dir")


def reloaded(running: Config, wanted: Config) -> tuple[Config, list[str]]:
    """(what the worker runs with from now on, keys that need a restart and keep their value).

    The spool belongs to one receiver, the port and its pages to the process.
    """
    kept: dict[str, Any] = {"web": running.web, "traces": running.traces}
    ignored = [f"{name}.*" for name, value in kept.items() if getattr(wanted, name) != value]
    write = replace(wanted.write, **{name: getattr(running.write, name) for name in _OF_WRITE})
    ignored += [f"write.{name}" for name in _OF_WRITE if getattr(wanted.write, name) != getattr(write, name)]
    prometheus = wanted.prometheus
    if not running.write.url and prometheus.url != running.prometheus.url:
        prometheus = replace(prometheus, url=running.prometheus.url)
        ignored.append("prometheus.url (results go there too)")
    if wanted.worker != running.worker:
        kept["worker"] = running.worker  # its series would never be ended
        ignored.append("worker")
    return replace(wanted, write=write, prometheus=prometheus, **kept), ignored
