"""A card as at most twelve lines, and as JSON (`argus.verdict/1`: verdict.schema.json). No I/O.

The annotation `card` of the alerts is the same text, line for line: jsonnet/card/annotation.libsonnet.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from argus_core.causes import WORDS
from argus_core.version import installed_version
from argus_l3_worker.reports.card import Card, Fact
from argus_l3_worker.reports.questions import beginning, table
from argus_l3_worker.reports.subjects import listed

SCHEMA: Final = "argus.verdict/1"
_NAME: Final = 40
"""Of what users choose; alerts do not shorten it."""
_MOST_MEMBERS: Final = 64
_MOST_LISTED: Final = 8
_OVER: Final = "nothing now, it is over; if it comes back, the runbook says what"


@dataclass(frozen=True)
class Links:
    """Where people find more; `runbook` holds one %s for its name, what is empty is left out."""

    runbook: str
    dashboard: str = ""
    traces: str = ""

    def of(self, card: Card) -> dict[str, str]:
        """By what they lead to."""
        trace = quote(card.trace)
        rank = {"rank": card.main.rank} if card.main and card.main.rank else {}
        of = {"cluster": card.cluster, **rank, "training_job": card.training_job}
        variables = "&".join(f"var-{name}={quote(value)}" for name, value in of.items() if value)
        found = {
            "runbook": self.runbook % card.runbook if card.runbook else "",
            "dashboard": f"{self.dashboard}?{variables}" if self.dashboard else "",
            "trace": f"{self.traces.rstrip('/')}/traces/{trace}?ui=1"
            if self.traces and trace
            else card.trace,
        }
        return {name: link for name, link in found.items() if link}


def as_text(card: Card, links: Links) -> str:
    """Its lines, as in an alert."""
    return "\n".join(map(_printable, _lines(card, links))) + "\n"


def beside(card: Card) -> str:
    """What the worker knows beyond an alert: who else, who looked guilty, and what was not judged."""
    looked = [
        f"{one.who} {beginning(WORDS.get(one.cause, one.cause))} (explained by {one.by})"
        for one in card.excluded
    ]
    rows = (
        ("also", listed([_short(one) for one in card.also], 4)),
        ("also seen", listed(looked, 1)),
        ("not judged", listed(card.reasons, 4) if card.subject else ""),
    )
    return "".join(f"{label}: {_printable(text)}\n" for label, text in rows if text)


def _lines(card: Card, links: Links) -> Iterator[str]:
    yield _headline(card)
    said = _said(card)
    for number, label in enumerate(table()["lines"]):
        text = "".join(text for at, text in said if at[0] == str(number))[2:]
        if card.subject is None and label == "why":
            text = listed(card.reasons, 4)
        if label and text:
            yield f"{label:<8} {text}"
    if card.step:
        yield f"do       {_OVER if card.state == 'over' else card.step}"
    if found := links.of(card):
        yield f"look     {'  '.join(found.values())}"
    where = f" --cluster {shlex.quote(card.cluster)}" if card.cluster else ""
    at = f"{card.at:.3f}".removesuffix(".000")
    again = f"argus-l3-worker explain --job {shlex.quote(card.training_job)}{where} --time {at}"
    yield f"id       {card.id}  {again}"


def _headline(card: Card) -> str:
    if card.subject is None:
        return _nobody(card)
    tag = "over" if card.state == "over" else card.severity or card.state
    where = card.place.get("node", "")
    rest = "".join(text for at, text in _said(card) if at[0] == "0")
    on = f" on {_short(where)}" if where else ""
    return (
        f"[{tag}] {_short(card.training_job)}: {_short(card.subject.name)}{on} {beginning(card.words)}{rest}"
    )


def _nobody(card: Card) -> str:
    if card.state == "abstained":
        return f"[abstained] {card.training_job}: cannot be judged, so it may be slow or not"
    ranks, takes = card.facts.get("job.world_size"), card.facts.get("job.iteration_s")
    who = f"none of {_number(ranks)} ranks" if ranks else "nobody"
    then = f"; an iteration takes {_number(takes)}" if takes else ""
    return f"[nothing found] {card.training_job}: {who} stands out{then}"


def _said(card: Card) -> list[tuple[str, str]]:
    """All that facts, ranks and refutations say of somebody, in the order of a card."""
    if card.subject is None:
        return []
    phase = _short(card.phase) or "it"
    found = [
        (at, text.replace("#", _number(fact)).replace("@", phase))
        for fact in card.facts.values()
        for at, text in fact.says.items()
    ]
    if who := _who(card):
        found.append(("10", f", {who}"))
    for number, one in enumerate(card.refutations):
        place = {True: 0, None: 3, False: 6}[one.true] + number
        so = {True: "YES", None: "ask", False: "no"}[one.true]
        found.append((f"7{place}", f"; [{so}] {one.claim}"))
    return sorted(found)


def _who(card: Card) -> str:
    if card.members.count:
        of_job = not card.members.first[0][0]
        named = [
            node if of_job else f"{rank} ({node})" if node else rank for rank, node in card.members.first
        ]
        more = card.members.count - len(named)
        who = "all ranks, on" if of_job else "ranks"
        return f"{who} {', '.join(named)}" + (f" and {more} more" if more else "")
    axes = " ".join(name + card.place[name] for name in table()["axes"] if name in card.place)
    node = card.place.get("node", "")
    return ", ".join(filter(None, (f"on {node}" if node else "", card.place.get("gpu_uuid", ""), axes)))


def _number(fact: Fact) -> str:
    """As people read it, with its unit: the formats of Prometheus' templates."""
    value = fact.value
    if fact.unit == "s":
        return _humanised(value)
    if fact.unit in ("minute", "Unix s"):
        moment = datetime.fromtimestamp(value, UTC)
        return f"{moment:%Y-%m-%d %H:%M UTC}" if fact.unit == "minute" else f"{moment:%H:%M:%S UTC}"
    if fact.unit in ("share", "change"):
        return f"{100 * value:.3g}%" if fact.unit == "share" else f"{100 * value:+.0f}%"
    formats = {"times": "{:.2f}x", "count": "{:.0f}", "GPUs": "{:.1f}", "GPU-hours": "{:.2f} GPU-hours"}
    return formats[fact.unit].format(value)


def _humanised(seconds: float) -> str:
    """`humanizeDuration` of Prometheus: 1d 2h 3m 4s, 16m 12s, 1.503s, 40ms."""
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    if seconds >= 60:
        minutes, rest = divmod(int(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        days, hours = divmod(hours, 24)
        large = [(days, "d"), (hours, "h"), (minutes, "m")]
        first = next(number for number, (count, _) in enumerate(large) if count)
        return sign + " ".join(f"{count}{unit}" for count, unit in (*large[first:], (rest, "s")))
    prefix = ""
    for smaller in ("m", "u", "n"):
        if seconds == 0 or seconds >= 1:
            break
        prefix, seconds = smaller, seconds * 1000
    return f"{sign}{seconds:.4g}{prefix}s"


def _short(name: str) -> str:
    """A name that users choose."""
    return name if len(name) <= _NAME else name[: _NAME - 3] + "..."


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _rfc3339(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def as_json(card: Card, links: Links) -> dict[str, Any]:
    """All of it; each number of `size`, `cost` and so on is in `evidence`, by its path, with its query."""
    of: dict[str, dict[str, float]] = {}
    for fact in card.facts.values():
        whole, _, part = fact.id.partition(".")
        of.setdefault(whole, {})[part] = fact.value
    main, onset = card.main, card.value("onset.time")
    return {
        "schema": SCHEMA,
        "id": card.id,
        "state": card.state,
        "kind": card.kind or None,
        "severity": card.severity or None,
        "job": {"cluster": card.cluster, "training_job": card.training_job, **of.get("job", {})},
        "subject": _subject(card),
        "cause": {"id": main.cause, "team": main.team, "level": main.level, "words": card.words}
        if main
        else None,
        "onset": None if math.isnan(onset) else {**of["onset"], "time": _rfc3339(onset)},
        **{name: of.get(name, {}) for name in ("size", "cost", "history")},
        "evidence": [_evidence(one) for one in card.facts.values()],
        "excluded": [asdict(one) | {"time": _rfc3339(card.at)} for one in card.excluded[:_MOST_LISTED]],
        "excluded_count": len(card.excluded),
        "disproof": [asdict(one) | {"expect": "no sample"} for one in card.refutations],
        "victims": of.get("victims", {}),
        "also": _names(card.also),
        "not_judged": _names(card.reasons),
        "advice": [{"text": card.step}] if card.step else [],
        "links": links.of(card),
        "text": as_text(card, links),
        "made": {"time": _rfc3339(card.at), "argus": installed_version()},
    }


def _evidence(fact: Fact) -> dict[str, Any]:
    """Without the words of the card."""
    found = asdict(fact) | {"time": _rfc3339(fact.time)}
    del found["says"]
    found["unit"] = "Unix s" if fact.unit == "minute" else fact.unit
    return found


def _subject(card: Card) -> dict[str, Any] | None:
    if card.subject is None or card.main is None:
        return None
    known = {"rank": card.main.rank, "set": card.main.set, "group": card.main.group}
    return {
        "type": next((name for name, of in known.items() if of), "job"),
        "name": card.subject.name,
        "ranks": card.subject.ranks[:_MOST_MEMBERS],
        "ranks_count": len(card.subject.ranks),
        "nodes": card.hosts[:_MOST_MEMBERS],
        "gpu_uuid": card.place.get("gpu_uuid"),
        "coordinates": {name: of for name, of in card.place.items() if name not in ("node", "gpu_uuid")},
        "phase": card.phase or None,
        "group": card.main.group or card.group or None,
    }


def _names(found: Iterable[str]) -> list[str]:
    return list(found)[:_MOST_LISTED]
