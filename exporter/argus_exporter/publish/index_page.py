"""The page that a person sees at `/`: what this exporter serves and which ranks it has."""

from __future__ import annotations

import html
import time
from collections.abc import Iterable
from typing import Final

from argus_core.version import installed_version
from argus_exporter.ranks.rank_state import RankState

_STYLE: Final = (
    "body{font:16px system-ui;margin:2rem;max-width:70rem}td,th{padding:.2rem 1rem .2rem 0;text-align:left}"
    ".bad{color:#b00020}"
)
_LINKS: Final = (
    ("/metrics", "metrics of all ranks and of the exporter"),
    ("/healthz", "whether the exporter lives"),
    ("/readyz", "whether it takes producers"),
)


def index_page(ranks: Iterable[RankState], socket: str) -> str:
    """HTML; every text of a producer is escaped."""
    rows = "".join(map(_row, ranks))
    table = (
        f"<table><tr><th>training job<th>rank<th>role<th>state<th>last step<th>channels</tr>{rows}</table>"
        if rows
        else f"<p>No rank has connected to <code>{html.escape(socket)}</code>. "
        "Start training with <code>argus-exporter run -- COMMAND</code>.</p>"
    )
    links = "".join(f'<li><a href="{path}">{path}</a>: {what}' for path, what in _LINKS)
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>ARGUS exporter</title>"
        f"<style>{_STYLE}</style><h1>ARGUS exporter {html.escape(installed_version())}</h1>"
        f"<ul>{links}</ul><h2>Ranks</h2>{table}</html>"
    )


def _row(state: RankState) -> str:
    identity = state.identity
    life = "connected" if state.connected else '<span class="bad">lost</span>'
    return (
        f"<tr><td>{html.escape(identity.training_job)}"
        f'<td><a href="/metrics?rank={identity.rank}">{identity.rank}</a>'
        f"<td>{html.escape(identity.role)}<td>{life}<td>{_last_step(state)}<td>{_channels(state)}</tr>"
    )


def _last_step(state: RankState) -> str:
    if state.iterations is None:
        return "none yet"
    last = state.iterations.last
    return f"{last.step}, {max(0.0, time.time() - last.end_ns / 1e9):.0f} s ago"


def _channels(state: RankState) -> str:
    shown = []
    for channel, totals in sorted(state.channels.items()):
        name = channel.name.lower()
        shown.append(
            f"{name} up" + (f" ({html.escape(totals.reason)})" if totals.reason else "")
            if totals.up
            else f'<span class="bad">{name} down: {html.escape(totals.reason)}</span>'
        )
    return ", ".join(shown)
