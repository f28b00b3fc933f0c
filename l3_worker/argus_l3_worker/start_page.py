"""The page that a person sees at `/`: whether the worker works, and where its numbers and traces are."""

from __future__ import annotations

import time
from html import escape
from typing import Final

from argus_core import catalogue
from argus_core.version import installed_version
from argus_l3_worker.telemetry import Telemetry

_REFRESH_SECONDS: Final = 30
_STYLE: Final = "body{font:16px system-ui;margin:2rem;max-width:70rem}td{padding:.2rem 1rem .2rem 0}"
_TRACES: Final = (
    "<li><code>/traces/TRAINING_JOB/YYYY-MM-DD/</code>: the traces of a job's day, each with a button that "
    "opens it in the Perfetto UI"
)


def start_page(telemetry: Telemetry, remark: str, *, traces: bool) -> str:
    """HTML that loads itself anew. `remark`: what is wrong, or ok; `traces`: whether they are served."""
    value = telemetry.registry.get_sample_value
    last = value(catalogue.WORKER_LAST_SUCCESS.name) or 0.0
    held = sum(sample.value for family in telemetry.anomalies.collect() for sample in family.samples)
    rows = {
        "health": remark,
        "last cycle that reached Prometheus": f"{time.time() - last:.0f} s ago" if last else "none yet",
        "it took": f"{value(catalogue.WORKER_CYCLE_SECONDS.name) or 0.0:.2f} s",
        "anomalies held": f"{held:.0f}",
    }
    table = "".join(f"<tr><td>{name}<td>{escape(text)}</tr>" for name, text in rows.items())
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        f"<meta http-equiv=refresh content={_REFRESH_SECONDS}><title>ARGUS L3 worker</title>"
        f"<style>{_STYLE}</style><h1>ARGUS L3 worker {escape(installed_version())}</h1>"
        f"<table>{table}</table><ul>"
        '<li><a href="/metrics">/metrics</a>: what the worker says of itself; its findings are in Prometheus'
        f'<li><a href="/healthz">/healthz</a>: whether its cycles end{_TRACES if traces else ""}</ul></html>'
    )
