"""The page that a person sees at `/`: what this exporter serves, which ranks it has, and which it had."""

from __future__ import annotations

import html
import time
from typing import Final

from argus_core.version import installed_version
from argus_exporter.ranks.rank_registry import Departed, RankRegistry
from argus_exporter.ranks.rank_state import RankState

_REFRESH_SECONDS: Final = 15
_STYLE: Final = (
    "body{font:16px system-ui;margin:2rem;max-width:90rem}td,th{padding:.2rem 1rem .2rem 0;text-align:left}"
    ".bad{color:#b00020}"
)
_LINKS: Final = (
    ("/metrics", "metrics of all ranks and of the exporter"),
    ("/healthz", "whether the exporter lives"),
    ("/readyz", "whether it takes producers"),
)
_HEADINGS: Final = ("training job", "rank", "host", "role", "state", "iteration", "last step", "channels")


def index_page(ranks: RankRegistry, socket: str) -> str:
    """HTML that loads itself anew; every text of a producer is escaped."""
    now = ranks.clock()
    rows = "".join(_row(state, now) for state in ranks)
    table = (
        f"<table><tr>{_heads(*_HEADINGS)}</tr>{rows}</table>"
        if rows
        else f"<p>No rank has connected to <code>{html.escape(socket)}</code>. "
        "Start training with <code>argus-exporter run -- COMMAND</code>.</p>"
        if not ranks.departed
        else "<p>No rank is connected.</p>"
    )
    gone = "".join(_gone(one, now) for one in reversed(ranks.departed))
    departed = (
        f"<h2>Ranks that are gone</h2><table><tr>{_heads('training job', 'rank', 'host', 'when', 'how')}</tr>"
        f"{gone}</table>"
        if gone
        else ""
    )
    links = "".join(f'<li><a href="{path}">{path}</a>: {what}' for path, what in _LINKS)
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        f"<meta http-equiv=refresh content={_REFRESH_SECONDS}><title>ARGUS exporter</title>"
        f"<style>{_STYLE}</style><h1>ARGUS exporter {html.escape(installed_version())}</h1>"
        f"<ul>{links}</ul><h2>Ranks</h2>{table}{departed}</html>"
    )


def _heads(*names: str) -> str:
    return "".join(f"<th>{name}" for name in names)


def _row(state: RankState, now: float) -> str:
    identity = state.identity
    return (
        f"<tr><td>{html.escape(identity.training_job)}"
        f'<td><a href="/metrics?rank={identity.rank}">{identity.rank}</a>'
        f"<td>{html.escape(identity.node)}<td>{html.escape(identity.role)}<td>{_life(state, now)}"
        f"<td>{_iteration(state, now)}<td>{_last_step(state)}<td>{_channels(state)}</tr>"
    )


def _gone(one: Departed, now: float) -> str:
    identity = one.identity
    return (
        f"<tr><td>{html.escape(identity.training_job)}<td>{identity.rank}<td>{html.escape(identity.node)}"
        f"<td>{_ago(now - one.at)}<td>{html.escape(one.how)}</tr>"
    )


def _life(state: RankState, now: float) -> str:
    if state.connected:
        return "connected"
    since = "" if state.lost_at is None else f", {_ago(now - state.lost_at)}"
    return f'<span class="bad">lost{since}</span>'


def _iteration(state: RankState, now: float) -> str:
    if state.iterations is None:
        return ""
    longest = state.iterations.longest.value(now)
    recent = "" if longest is None else f", longest {longest:.3g} s"
    return f"{state.iterations.last.duration_ns / 1e9:.3g} s{recent}"


def _last_step(state: RankState) -> str:
    if state.iterations is None:
        return "none yet"
    last = state.iterations.last
    return f"{last.step}, {_ago(time.time() - last.end_ns / 1e9)}"


def _ago(seconds: float) -> str:
    return f"{max(0.0, seconds):.0f} s ago"


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
