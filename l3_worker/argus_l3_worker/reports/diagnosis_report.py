"""A diagnosis as text, as JSON and as one HTML page with plots: cards, and the whole. No I/O."""

from __future__ import annotations

import json
import math
import re
import shlex
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

from argus_l3_worker.reports import card_text
from argus_l3_worker.reports.card import Card
from argus_l3_worker.reports.card_text import Links
from argus_l3_worker.reports.costs import Points
from argus_l3_worker.reports.diagnosis import Diagnosis
from argus_l3_worker.reports.subjects import listed

# In escaped text: without quotes.
_URL: Final = re.compile(r"https?://[^\s&<>]+(?:&amp;[^\s&<>]+)*")
_MOST_ROWS: Final = 20
_MOST_TRACES: Final = 8
MOST_CARDS: Final = 3


def as_text(found: Diagnosis, cards: Sequence[Card], links: Links) -> str:
    """For people: what the job went through, and a card for each of the costliest."""
    return "\n".join(_lines(found, cards, links)) + "\n"


def _lines(found: Diagnosis, cards: Sequence[Card], links: Links) -> Iterator[str]:
    yield f"job {found.training_job}, {_time(found.start)} to {_time(found.end)}, {len(found.info)} ranks"
    yield f"iteration: {found.iteration_class}"
    if found.alerts:
        yield f"alerts fired: {', '.join(found.alerts)}"
    for card in cards:
        yield ""
        yield from card_text.as_text(card, links).splitlines()
        yield from card_text.beside(replace(card, reasons=())).splitlines()  # they stand below
    yield ""
    for subject in found.subjects[len(cards) :][:_MOST_ROWS]:
        yield f"also accused: {subject.name}: {', '.join(sorted({one.cause for one in subject.accusations}))}"
    if found.costs.gpu_hours:
        of_causes = found.costs.by_cause.items()
        by_cause = ", ".join(f"{cause or 'unknown'} {hours:.2f}" for cause, hours in of_causes)
        yield f"cost: {found.costs.gpu_hours:.2f} GPU-hours of the whole job; by cause {by_cause}"
    for left_out in found.not_judged[:_MOST_ROWS]:
        yield f"not judged now: {left_out}"
    yield from _cross_checks(found)
    if found.farthest is not None:
        rank, kernel, seconds = found.farthest
        command = f"argus-l3-worker matrix --training-job {shlex.quote(found.training_job)}"
        yield (
            f"kernels: rank {rank} lies farthest from its role, W1 {seconds * 1e6:.3g} us; all of them: "
            f"{command} --kernel {shlex.quote(kernel)} --out map.html"
        )
    if keys := [key for _, key, _ in found.traces[:_MOST_TRACES]]:
        yield f"compare traces: argus-l3-worker trace {' '.join(keys)}"


def _cross_checks(found: Diagnosis) -> Iterator[str]:
    """What makes no verdict: whether it points at whom the verdicts name."""
    said = []
    if found.rhythm:
        rank, distance = found.rhythm[0]
        usual = statistics.median(one for _, one in found.rhythm)
        said.append(f"rhythm (KAIR) farthest on rank {rank}, {distance:.2f}, median {usual:.2f}")
    if found.unlike:
        texts = [
            f"rank {rank} unlike {share:.0%} of its peers in {part}" for rank, part, share in found.unlike
        ]
        said.append(f"GPU time (EROICA): {listed(texts, 4)}")
    if said:
        yield f"cross-checks: {'; '.join(said)}"


def as_json(found: Diagnosis, cards: Sequence[Card], links: Links) -> str:
    """Everything; NaN is null."""
    content = asdict(found) | {"cards": [card_text.as_json(card, links) for card in cards]}
    return json.dumps(_finite(content), indent=2)


def as_html(found: Diagnosis, cards: Sequence[Card], links: Links) -> str:
    """One page that needs nothing else: the text, and iteration time and lost GPUs over time."""
    text = _URL.sub(r'<a href="\g<0>">\g<0></a>', escape(as_text(found, cards, links)))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>ARGUS: {escape(found.training_job)}</title><style>body{{font:14px sans-serif;margin:1.5em}}"
        "pre{background:#f6f6f6;padding:1em;white-space:pre-wrap}svg{width:100%;max-width:60em}</style></head><body>"
        f"<h1>{escape(found.training_job)}</h1><pre>{text}</pre>"
        f"{_chart('Iteration, seconds', found.iteration, found)}"
        f"{_chart('GPUs lost', found.costs.gpus, found)}</body></html>\n"
    )


def _chart(title: str, points: Points, found: Diagnosis) -> str:
    """An SVG of one line."""
    if len(points) < 2:
        return f"<h2>{escape(title)}</h2><p>Nothing recorded.</p>"
    width, height, left, bottom = 900.0, 220.0, 60.0, 25.0
    top = max(value for _, value in points) * 1.1 or 1.0

    def x(time: float) -> float:
        return left + (time - found.start) / (found.end - found.start) * (width - left)

    def y(value: float) -> float:
        return (height - bottom) * (1.0 - value / top) + 5.0

    line = " ".join(f"{x(time):.1f},{y(value):.1f}" for time, value in points)
    marks = "".join(
        f'<text x="0" y="{y(value) + 4:.1f}" font-size="11">{value:.3g}</text>'
        f'<line x1="{left}" x2="{width}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>'
        for value in (0.0, top / 2.0, top)
    )
    return (
        f'<h2>{escape(title)}</h2><svg viewBox="0 0 {width:.0f} {height:.0f}" role="img">{marks}'
        f'<polyline points="{line}" fill="none" stroke="#06c" stroke-width="1.5"/>'
        f'<text x="{left}" y="{height - 4:.0f}" font-size="11">{_time(found.start)}</text>'
        f'<text x="{width}" y="{height - 4:.0f}" font-size="11" text-anchor="end">{_time(found.end)}</text>'
        "</svg>"
    )


def _time(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
