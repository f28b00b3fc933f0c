"""The card: who is to blame, since when, what it costs and why, each number with its query.

Reads Prometheus only, and judges nothing anew. A set of suspects, an abstention and that nothing was found
are answers like any other.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from argus_core.causes import HANGS, WORDS
from argus_l3_worker.read.prometheus import Prometheus, selector
from argus_l3_worker.reports.costs import STALLED
from argus_l3_worker.reports.diagnosis import Diagnosis, diagnose, info_at
from argus_l3_worker.reports.questions import Question, filled, page_of, questions, quoted, table
from argus_l3_worker.reports.subjects import Accusation, Subject, hosts_of
from argus_l3_worker.roles import natural

_LOOK_BACK_S: Final = 6 * 3600
"""Of one query of the onset; so often again, which is two weeks."""
_LOOKS: Final = 56
_MOST_NAMED: Final = 8
"""Of the ranks of a set or a group."""
_PLACE: Final = ("node", "gpu_uuid", "dp", "tp", "pp", "cp", "ep", "role")


@dataclass(frozen=True)
class Fact(Question):
    """A number: `query` at Unix time `time` gives `value` again."""

    time: float
    value: float


@dataclass(frozen=True)
class Excluded:
    """Who looked like `cause` and was not named: `by` explains it, which costs `value` of the job's time."""

    who: str
    cause: str
    by: str
    query: str
    value: float


@dataclass(frozen=True)
class Refutation:
    """What would prove the card wrong, and whether it does; None: no series tells."""

    claim: str
    query: str
    true: bool | None


@dataclass(frozen=True)
class Members:
    """Ranks of a set or a group with their hosts, or the hosts of a job; how many there are."""

    first: tuple[tuple[str, str], ...] = ()
    count: int = 0


@dataclass(frozen=True)
class Card:
    """An answer about one job at Unix time `at`.

    Attributes:
        state: `suspect`; `confirmed` where an alert is decided; `over`; `abstained`; `none`: nothing found.
        kind: one of the table's `size`, empty where nobody is accused.
        severity: of the decision, empty without one.
        main: the costliest of what speaks against `subject`; both None where nobody is accused.
        words: what it is, in a sentence about the subject.
        place: host, GPU and coordinates of a rank.
        members: of a set, a group or a job.
        phase, group: in which it loses most, and the group whose ranks are compared there.
        also: what else the subject is accused of, and who else is, costliest first.
        reasons: what was not judged, and why.
        runbook: name of its page; empty where there is nothing to do.
        trace: key of the newest of its rank, or of one of the suspects, or of a job that is slow as a whole.
    """

    id: str
    state: str
    cluster: str
    training_job: str
    at: float
    kind: str = ""
    severity: str = ""
    subject: Subject | None = None
    main: Accusation | None = None
    words: str = ""
    hosts: tuple[str, ...] = ()
    place: Mapping[str, str] = field(default_factory=dict)
    phase: str = ""
    group: str = ""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    members: Members = Members()
    excluded: tuple[Excluded, ...] = ()
    refutations: tuple[Refutation, ...] = ()
    also: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    step: str = ""
    runbook: str = ""
    trace: str = ""

    def value(self, fact: str) -> float:
        """NaN where it is not known."""
        return self.facts[fact].value if fact in self.facts else math.nan


async def explain(prometheus: Prometheus, job: Mapping[str, str], start: float, end: float) -> Card:
    """The costliest of what holds in a job, by its labels, at Unix time `end`, else the last since `start`.

    Raises:
        QueryError: Prometheus cannot be asked, or its answer is incomplete.
        ArgusWorkerError: there is no such job in that time.
    """
    found = await diagnose(prometheus, job, start, end)
    over = bool(found.subjects) and not any(one.active for one in found.subjects)
    if over:  # as it was when it was last there
        last = max(one.last for one in found.subjects)
        found = await diagnose(prometheus, job, start - (end - last), last)
    hanging = [one for one in found.subjects if one.active and one.accusations[0].cause in (*HANGS, STALLED)]
    ordered = [*hanging, *(one for one in found.subjects if one not in hanging)]
    return await card_of(prometheus, found, ordered, over=over)


async def cards_of(prometheus: Prometheus, found: Diagnosis, most: int) -> list[Card]:
    """A card for each of the first subjects of a diagnosis, as it was when it was last there."""
    accused = [(one,) for one in found.subjects[:most]]
    return [await card_of(prometheus, found, one, over=not one[0].active) for one in accused] or [
        await card_of(prometheus, found, ())
    ]


async def card_of(
    prometheus: Prometheus, found: Diagnosis, accused: Sequence[Subject], *, over: bool = False
) -> Card:
    """A card on the first of `accused`, when it was last there; without one, why nobody is."""
    at = accused[0].last if accused else found.end
    found = replace(found, info=await info_at(prometheus, found, at))
    empty = Card("", "none", found.clusters[0], found.training_job, at, reasons=found.not_judged)
    if len(found.clusters) > 1:
        why = f"jobs of several clusters have this name ({', '.join(found.clusters)}): say --cluster"
        return _identified(replace(empty, state="abstained", cluster="", reasons=(why,)))
    asker = _Asker(prometheus, at, found.job)
    await asker.ask(questions("job"))
    if accused:
        return _identified(await _about(asker, found, accused, empty, over))
    if "job.world_size" not in asker.facts:  # nothing is found only where something was looked at
        why = "none of the recorded series of the job is there: are the rules loaded, and is it scraped?"
        return _identified(replace(empty, state="abstained", reasons=(why,)))
    await asker.ask(questions("abstained"))
    if "more.abstained" not in asker.facts:
        return _identified(replace(empty, facts=asker.facts))
    step = table()["advice"]["abstained"]
    return _identified(replace(empty, state="abstained", facts=asker.facts, step=step))


async def _about(
    asker: _Asker, found: Diagnosis, accused: Sequence[Subject], empty: Card, over: bool
) -> Card:
    """Fills `empty` with what is known of the first of `accused`."""
    subject, main = accused[0], accused[0].accusations[0]
    kind = _kind(main)
    who = {name: getattr(main, name) for name in ("rank", "set", "group")}
    asker.know(series=main.series, who=selector("", who)[1:-1], rank=quoted(main.rank))
    asker.know(set=quoted(main.set), group=quoted(main.group), cause=quoted(main.cause))
    (phase, group, row), ranks = await asyncio.gather(_part(asker, main), _members(asker, subject, main))
    subject, hosts = replace(subject, ranks=ranks), hosts_of(ranks, found.info)
    place = found.info.get(main.rank, {})
    asker.know(phase=quoted(phase), part_group=quoted(group), node=quoted(place.get("node", "")))
    asker.know(where=place.get("node", "") or "its host")
    of_hang = "_of_hang" if kind == "hang" else ""
    recorded = await asker.onset(*questions(f"onset{of_hang}"))
    if not recorded:  # what the worker alone says, and what is older than a change of the rules
        await asker.onset(*questions("onset_of_worker"))
    # What is over stopped to cost before it stopped to be told.
    when = main.typical if over else asker.at
    await asker.ask((*questions(f"cost{of_hang}"), *questions("size", kind)), when)
    await asker.ask((*questions(f"so_far{of_hang}"), *questions(f"victims{of_hang}")))
    steps = table()["advice"]
    causes = {one.cause for one in subject.accusations if one.active or over} - {main.cause}
    more = [f"{cause} of {subject.name}" for cause in sorted(causes)]
    decided = await asker.rows(table()[f"decided{of_hang}"], "severity")
    return replace(
        empty,
        reasons=() if kind == "hang" else empty.reasons,  # a stall silences all else
        state="over" if over else "confirmed" if decided else "suspect",
        kind=kind,
        severity=decided[0][0][0] if decided else "",
        subject=subject,
        main=main,
        words=_words(row, main),
        hosts=hosts,
        place={name: of for name, of in place.items() if name in _PLACE and of},
        phase="" if phase in ("all", "none") else phase,
        group=group,
        facts=asker.facts,
        members=await _first_members(asker, main, ranks, found),
        excluded=await _excluded(asker),
        refutations=await asker.refute(table()["refuted"][kind]),
        also=(*more, *(one.name for one in accused[1:] if one.active or over)),
        step=asker.filled(steps.get(kind) or steps.get(main.cause) or steps["other"]),
        runbook=_runbook(main, kind),
        trace=await _trace(asker, main, found),
    )


async def _first_members(asker: _Asker, main: Accusation, ranks: Sequence[str], found: Diagnosis) -> Members:
    """Of a set, a group or the job, as the alerts name them."""
    if main.rank:
        return Members()
    if not (main.set or main.group):
        rows = reversed(await asker.rows(table()["members"]["job"], "node"))
        nodes = [("", node) for (node,), _ in rows]
        return Members(tuple(nodes[:_MOST_NAMED]), len(nodes))
    ranks = await asker.ranks(table()["members"]["set" if main.set else "group"]) or ranks
    named = ((rank, found.info.get(rank, {}).get("node", "")) for rank in ranks[:_MOST_NAMED])
    return Members(tuple(named), len(ranks))


async def _trace(asker: _Asker, main: Accusation, found: Diagnosis) -> str:
    """The one that alerts name, else the newest of its ranks in the time that is looked at."""
    rows = await asker.rows(table()["trace"]["rank" if main.rank else "other"], "trace_key")
    keys = [key for (key,), _ in rows]
    keys += [key for rank, key, suspect in found.traces if not main.ranks or (suspect and rank in main.ranks)]
    return keys[0] if keys else ""


class _Asker:
    """Asks about one subject at Unix time `at`, and keeps the answers."""

    def __init__(self, prometheus: Prometheus, at: float, job: Mapping[str, str]) -> None:
        self._prometheus = prometheus
        self._values = {"job": selector("", job)[1:-1], "training_job": quoted(job["training_job"])}
        self.at = at
        self.facts: dict[str, Fact] = {}

    def filled(self, text: str) -> str:
        """A query with all that is known; empty where something is not."""
        return filled(text, self._values)

    def know(self, **values: str) -> None:
        """Values of queries, by name."""
        self._values |= values

    async def ask(self, asked: Iterable[Question], at: float | None = None) -> None:
        await asyncio.gather(*(self._one(one, self._query(one), at or self.at) for one in asked))

    def _query(self, one: Question) -> str:
        """Filled in the order of questions: later ones may name earlier ones."""
        query = self.filled(one.query)
        if query:
            self._values[one.id] = f"({query})"
        return query

    async def _one(self, one: Question, query: str, at: float) -> None:
        found = await self._prometheus.instant(query, at) if query else []
        if found:
            self.facts[one.id] = Fact(
                one.id, one.unit, one.source, one.claim, query, one.says, at, found[0].value
            )

    async def onset(self, first: Question, lasted: Question) -> bool:
        """When it was first there, and for how long it has lasted; False where that is not known."""
        looks = range(_LOOKS if "[6h:" in first.query else 1)
        for look in looks:
            await self._one(first, self._query(first), self.at - look * _LOOK_BACK_S)
            if first.id in self.facts:
                break
        else:
            return False
        if look:  # the query gives it again at the time at which it was asked only
            self._values[first.id] = f"(vector({self.facts[first.id].value:.3f}))"
        await self.ask((lasted,))
        seconds = self.facts[lasted.id].value
        step = next((step for most, step in table()["steps"] if seconds <= most), table()["steps"][-1][1])
        self.know(lasted=f"{seconds:.0f}s", step=f"{step}s", step_s=str(step))
        return True

    async def refute(self, claims: Sequence[Sequence[str]]) -> tuple[Refutation, ...]:
        """Those that can be asked, and those that people must answer."""
        found = []
        for claim, text in claims:
            if query := self.filled(text):
                found.append(Refutation(claim, query, bool(await self._prometheus.instant(query, self.at))))
            elif not text:
                found.append(Refutation(claim, "", None))
        return tuple(found)

    async def rows(self, text: str, *labels: str) -> list[tuple[tuple[str, ...], float]]:
        """Samples by these labels, the largest first."""
        query = self.filled(text)
        answer = await self._prometheus.instant(query, self.at) if query else []
        found = [(tuple(one.labels.get(name, "") for name in labels), one.value) for one in answer]
        return sorted(found, key=lambda row: (-row[1], row[0]))

    async def ranks(self, text: str) -> tuple[str, ...]:
        """Of all samples, in order."""
        return tuple(sorted({rank for (rank,), _ in await self.rows(text, "rank")}, key=natural))


_KINDS: Final = {"data-input": "data_stall", "collective-late": "late_rank", "workload": "more_work"}
"""Of a rank, by the cause."""


def _kind(main: Accusation) -> str:
    if main.cause in (*HANGS, STALLED):
        return "hang"
    if main.set:
        return "suspect_set"
    if main.rank:
        return _KINDS.get(main.cause, "slow_rank")
    if main.group:
        return "slow_group" if main.level == "L3" else "slow_link"
    return "job_regression"


async def _part(asker: _Asker, main: Accusation) -> tuple[str, str, str]:
    """The phase in which it loses most, the group whose ranks are compared there, the row of the table."""
    whose = "set" if main.set else "rank" if main.rank else "group" if main.group else "job"
    query = "max by (phase, group, row) (<series>)" if main.cause in HANGS else table()["part"][whose]
    rows = await asker.rows(query, "phase", "group", "row")
    return next(((phase, group, row) for (phase, group, row), _ in rows), ("", "", ""))


async def _members(asker: _Asker, subject: Subject, main: Accusation) -> tuple[str, ...]:
    """Ranks of a set or a group, also where the topology does not tell them."""
    if subject.ranks or main.level == "L3":
        return subject.ranks
    return await asker.ranks("rank:argus_evidence:lost_ratio{<job>,set=<set>}") or await asker.ranks(
        "argus_rank_number{<job>} and on (rank) argus_group_expected_ranks{<job>,group=<group>}"
    )


async def _excluded(asker: _Asker) -> tuple[Excluded, ...]:
    """Others who looked guilty, and what explains it; not what silences everybody, which is an abstention."""
    names = ("rank", "group", "set", "cause", "by", "by_rank")
    by = f"max by ({', '.join(names)}) (rank:argus_exclusion:lost_ratio{{<job>,%s}})"
    found = []
    for labels, value in await asker.rows(by % 'by!~"activity|stall|coverage"', *names):
        rank, group, of_set, cause, why, by_rank = labels
        if not rank or rank != by_rank:
            who = f"rank {rank}" if rank else of_set or group or "the job"
            of = f" of rank {by_rank}" if by_rank else ""
            exact = selector("", dict(zip(names, labels, strict=True)))[1:-1]
            asker.know(exact=exact)
            found.append(Excluded(who, cause, why + of, asker.filled(by % "<exact>"), value))
    return tuple(found)


def _words(row: str, main: Accusation) -> str:
    """Of the row of the table, where it is known; those of a family begin with its name."""
    if main.cause == STALLED:
        return "stands still, and nothing tells whom it waits for"
    return WORDS.get(f"{row}-{main.cause}") or WORDS.get(row) or WORDS.get(main.cause, main.cause)


def _runbook(main: Accusation, kind: str) -> str:
    if main.level == "L3" and math.isnan(main.lost):  # what the worker says of kernels, and rules do not
        of_worker = table()["runbooks_of_worker"]
        return str(of_worker.get(kind) or of_worker["other"])
    return page_of(main.cause, "L1" if kind == "hang" else main.level)


def _identified(card: Card) -> Card:
    """The same whatever its severity, and wherever and whenever it is read: what, who and since when."""
    onset = card.value("onset.time")
    main = card.main
    who = (main.rank or main.set or main.group or "job") if main else "job"
    since = "" if math.isnan(onset) else f"{datetime.fromtimestamp(onset, UTC):%Y%m%dT%H%M}"
    name = "-".join(filter(None, ("av1", main.cause if main else card.state, who, since)))
    return replace(card, id=name)
