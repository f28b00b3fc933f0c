"""A card as at most twelve lines, and as JSON (`argus.verdict/1`: verdict.schema.json). No I/O."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from argus_core.version import installed_version
from argus_l3_worker.reports.card import Card, Fact
from argus_l3_worker.reports.subjects import listed

SCHEMA: Final = "argus.verdict/1"
_COLUMNS: Final = 100
_FIRST_LINE: Final = 110
"""What a locked phone shows."""
_NAME: Final = 40
"""Of a job, a group or a phase: users choose them."""
_MOST_MEMBERS: Final = 64
_MOST_LISTED: Final = 8
_TAGS: Final = {"none": "nothing found"}
_WHAT: Final = {
    "slow_link": ("a transfer in {}", "its peer groups"),
    "hang": ("it is in {}", ""),
    "job_regression": ("an iteration", "before"),
    "late_rank": ("its wait in {}", "the median of its group"),
}


@dataclass(frozen=True)
class Links:
    """Where people find more; `runbook` holds one %s for its name, what is empty is left out."""

    runbook: str
    dashboard: str = ""
    traces: str = ""

    def of(self, card: Card) -> dict[str, str]:
        """By what they lead to."""
        trace, job = quote(card.traces[0]) if card.traces else "", quote(card.training_job)
        found = {
            "runbook": self.runbook % card.runbook if card.runbook else "",
            "dashboard": f"{self.dashboard}?var-training_job={job}" if self.dashboard else "",
            "trace": f"{self.traces.rstrip('/')}/traces/{trace}?ui=1" if self.traces and trace else trace,
        }
        return {name: link for name, link in found.items() if link}


def as_text(card: Card, links: Links) -> str:
    """Its lines; links alone may be longer than 100 characters."""
    return "\n".join(_lines(card, links)) + "\n"


def _lines(card: Card, links: Links) -> Iterator[str]:
    yield _cut(_headline(card), _FIRST_LINE)
    for label, text in (
        ("who", _place(card)),
        ("since", _since(card)),
        ("cost", _cost(card)),
        ("why", _why(card)),
        ("others", _others(card)),
        ("also", listed([_short(one) for one in card.also], 4)),
        (
            "before",
            _said(
                card,
                "history.other_jobs_30d",
                "other jobs with a rank named on this host in 30 days: ",
            ),
        ),
        ("wrong if", _refutations(card)),
        ("do", card.step),
    ):
        if text:
            yield _cut(f"{label:<8} {text}", _COLUMNS)
    if found := links.of(card):
        yield f"look     {'  '.join(found.values())}"
    where = f" --cluster {shlex.quote(card.cluster)}" if card.cluster else ""
    again = f"argus-l3-worker explain --job {shlex.quote(card.training_job)}{where} --time {card.at:.0f}"
    yield _printable(f"id       {card.id}  {again}")


def _headline(card: Card) -> str:
    tag = "over" if card.state == "over" else card.severity or _TAGS.get(card.state, card.state)
    return f"[{tag}] {_short(card.training_job)}: {_accused(card) or _nobody(card)}"


def _accused(card: Card) -> str:
    if card.subject is None:
        return ""
    where = f" on {_short(card.hosts[0])}" if len(card.hosts) == 1 else ""
    words = re.split("[;,:] ", card.words)[0]
    phase = f" in {_short(card.phase)}" if card.kind in ("slow_rank", "suspect_set") else ""
    size = _said(card, "size.late_s", ", by ") or _said(card, "size.ratio", ", ", phase)
    cost = _said(card, "cost.lost_ratio", "; ", " of the time lost")
    return f"{_short(card.subject.name)}{where} {words}{size}{cost}"


def _nobody(card: Card) -> str:
    if card.state == "abstained":
        return "not judged, so nothing is said of it"
    ranks = _said(card, "job.world_size", " of ", " ranks")
    return f"nobody{ranks} stands out{_said(card, 'job.iteration_s', '; an iteration takes ')}"


def _place(card: Card) -> str:
    ranks = card.subject.ranks if card.subject else ()
    return _joined(
        f"ranks {listed(ranks)}" if len(ranks) > 1 else "",
        f"on {listed([_short(host) for host in card.hosts], 4)}" if card.hosts else "",
        card.place.get("gpu_uuid", ""),
        " ".join(name + card.place[name] for name in ("dp", "tp", "pp", "cp", "ep") if name in card.place),
    )


def _since(card: Card) -> str:
    onset = card.value("onset.time")
    if math.isnan(onset):
        return ""
    return f"{datetime.fromtimestamp(onset, UTC):%Y-%m-%d %H:%M UTC}, for {_duration(card.at - onset)}"


def _cost(card: Card) -> str:
    iteration = _said(card, "job.iteration_s", "iteration ", ", without it ")
    return _joined(
        _said(card, "cost.lost_ratio", after=" of the time"),
        _said(card, "cost.lost_gpus", after=f" of {card.value('job.world_size'):.0f} GPUs"),
        _said(card, "cost.gpu_hours", after=" so far"),
        _said(card, "cost.step_without_s", iteration),
    )


def _why(card: Card) -> str:
    """The size against what it is held against, then the other evidence; of nobody, why not."""
    if card.subject is None:
        return "; ".join(card.reasons)
    phase = _short(card.phase) if card.phase not in ("all", "none") else ""
    what, against = _WHAT.get(card.kind, ("{}", "the median of its group"))
    what = what.replace("{}", phase or "it")
    others = _said(card, "size.peers", " (", " others)")
    facts = (fact for fact in card.facts.values() if fact.id.startswith("more.") and not _usual(fact))
    return _joined(
        _said(card, "size.stalled_s", "no iteration has ended for "),
        what if phase and card.kind == "hang" else "",
        _said(card, "size.ratio", "its work against the median rank's ") if card.kind == "more_work" else "",
        _said(card, "size.observed_s", what + " takes "),
        _said(card, "size.baseline_s", f"{against}{others} "),
        *(f"{fact.claim} {_number(fact.value, fact.unit)}" for fact in facts),
    )


def _usual(fact: Fact) -> bool:
    """Evidence that says nothing."""
    return fact.id == "more.abstained" or (fact.unit == "times" and abs(fact.value - 1.0) < 0.02)


def _others(card: Card) -> str:
    ranks = f" ({', '.join(card.victims)})" if len(card.victims) <= 4 else ""
    looked = [f"{one.who} ({one.cause}: {one.by})" for one in card.excluded]
    return _joined(
        f"{len(card.victims)} ranks wait{ranks}" if card.victims else "",
        f"not blamed: {listed(looked, 1)}" if looked else "",
        f"not judged: {listed(card.reasons, 2)}" if card.reasons and card.subject else "",
        by="; ",
    )


def _refutations(card: Card) -> str:
    """What is so comes first; then what people must say; what is not so last."""
    untrue = ", ".join(one.claim for one in card.refutations if one.true is False)
    return _joined(
        *(f"{one.claim}, AND IT IS SO" for one in card.refutations if one.true),
        *(one.claim for one in card.refutations if one.true is None),
        f"{untrue} (not so now)" if untrue else "",
        by="; ",
    )


def _said(card: Card, fact: str, before: str = "", after: str = "") -> str:
    found = card.facts.get(fact)
    return f"{before}{_number(found.value, found.unit)}{after}" if found else ""


def _joined(*texts: str, by: str = ", ") -> str:
    return by.join(filter(None, texts))


def _number(value: float, unit: str) -> str:
    """As people read it, with its unit."""
    if unit == "s":
        return (
            f"{value * 1000:.3g} ms" if value < 0.1 else f"{value:.2f} s" if value < 100 else _duration(value)
        )
    if unit == "share":
        return f"{value:.0%}" if value >= 0.1 else f"{value:.1%}"
    if unit == "Unix s":
        return f"{datetime.fromtimestamp(value, UTC):%H:%M:%S} UTC"
    formats = {"change": "{:+.0%}", "times": "{:.2f}x", "count": "{:.0f}", "GPU-hours": "{:.2f} GPU-hours"}
    return formats.get(unit, "{:.1f}").format(value)


def _duration(seconds: float) -> str:
    if seconds < 6000:
        return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _short(name: str) -> str:
    """A name that users choose."""
    return _cut(name, _NAME)


def _cut(text: str, most: int) -> str:
    return _printable(text if len(text) <= most else text[: most - 3] + "...")


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
        "onset": None if math.isnan(onset) else {"time": _rfc3339(onset), "precision_s": 60},
        **{name: of.get(name, {}) for name in ("size", "cost", "history")},
        "evidence": [asdict(one) | {"time": _rfc3339(one.time)} for one in card.facts.values()],
        "excluded": [asdict(one) | {"time": _rfc3339(card.at)} for one in card.excluded[:_MOST_LISTED]],
        "excluded_count": len(card.excluded),
        "disproof": [asdict(one) | {"expect": "no sample"} for one in card.refutations],
        "victims": {**of.get("victims", {}), "sample": card.victims[:_MOST_LISTED]},
        "also": _names(card.also),
        "not_judged": _names(card.reasons),
        "advice": [{"text": card.step}] if card.step else [],
        "links": links.of(card),
        "text": as_text(card, links),
        "made": {"time": _rfc3339(card.at), "argus": installed_version()},
    }


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
