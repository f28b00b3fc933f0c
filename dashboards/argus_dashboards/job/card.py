"""The card of what costs the job most: the queries and the words of the worker's table of questions.

Hidden variables hold who it is, and what else queries name; each row of the table is a line of the card.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from argus_core.causes import WORDS
from argus_dashboards import columns, texts, variables
from argus_dashboards.current import column
from argus_dashboards.panels import table
from argus_dashboards.promql import HANGING, JOB, findings
from argus_l3_worker.reports.questions import Question, beginning, filled, questions
from argus_l3_worker.reports.questions import table as asked

_STILL: Final = (
    f"3 * max by (rank, group, cause) (rank:argus_verdict:active{{{JOB}, {HANGING}}})"
    f' or 2 * label_replace(max(job:argus_stalled:seconds{{{JOB}}}) ^ 0, "cause", "stalled", "", "")'
)
_WORST: Final = f"topk(1, {_STILL} or {' '.join(findings(JOB).split())})"
"""What stands still goes before all else, as in the worker's card."""
_WHO: Final = ("rank", "set", "group")
_OF_WHO: Final = ",".join(f'{name}="$card_{name}"' for name in _WHO)
_VALUES: Final = {
    "job": JOB,
    "training_job": '"$training_job"',
    "who": _OF_WHO,
    **{name: f'"$card_{name}"' for name in (*_WHO, "cause", "phase", "part_group", "node")},
    "where": "$card_node",
    "lasted": "${card_lasted}s",
    "step": "${card_step}s",
    "step_s": "$card_step",
}
_KINDS: Final[Mapping[str, str]] = {
    "suspect_set": ',set!=""',
    "data_stall": ',rank!="",cause="data-input"',
    "late_rank": ',rank!="",cause="collective-late"',
    "more_work": ',rank!="",cause="workload"',
    "slow_rank": ',rank!="",cause!~"data-input|collective-late|workload"',
    "slow_link": ',group!=""',
    "job_regression": ',rank="",set="",group=""',
}
"""What the findings of each kind have; what stands still is none."""
_HANG: Final = "hang"
_LONG: Final = ("onset.lasted_s", "size.stalled_s")
"""Facts that may be hours."""


def _is(kind: str) -> str:
    """A sample where the accused is of this kind; of any, where it is empty."""
    if kind == _HANG:
        return f'label_replace(topk(1, {_STILL}), "level", "L1", "", "")'
    return (
        f'topk(1, rank:argus_finding:lost_ratio{{{JOB},{_OF_WHO},cause="$card_cause"{_KINDS.get(kind, "")}}})'
    )


def _facts(kind: str) -> Iterator[Question]:
    """Each with its query whole."""
    known = dict(_VALUES)
    of = "_of_hang" if kind == _HANG else ""
    for one in (
        *questions("job"),
        *(one for part in ("onset", "cost", "so_far", "victims") for one in questions(f"{part}{of}")),
        *questions("size", kind),
    ):
        query = filled(one.query, known)
        known[one.id] = f"({query})"
        yield replace(one, query=query)


def _said(kind: str, line: int) -> list[str]:
    """What facts say in a line, in its order."""
    found = []
    for one in _facts(kind):
        query = f"({one.query})"
        for at, says in one.says.items():
            if int(at[0]) == line:
                number = texts.lasted(query) if one.id in _LONG else texts.number(query, one.unit)
                text = says.replace("#", "${1}").replace("@", "$card_phase")
                found.append((at, texts.put(f"({number})", text)))
    return [text for _, text in sorted(found)]


def _claims(kind: str) -> list[str]:
    """What would refute it: what is so comes first, then what people must say."""
    found = []
    for place, (claim, text) in enumerate(asked()["refuted"][kind]):
        query = f"({filled(text, {**_VALUES, **{one.id: f'({one.query})' for one in _facts(kind)}})})"
        if not text:
            found.append((1, place, texts.constant(f"; [ask] {claim}")))
        else:
            found.append((0, place, texts.constant(f"; [YES] {claim}", f"max({query})")))
            found.append((2, place, texts.constant(f"; [no] {claim}", f"(vector(1) unless on () {query})")))
    return [text for *_, text in sorted(found)]


def _of_kinds(lines: Mapping[str, list[str]]) -> str:
    """The line of the kind that it is; kinds of which the same is said have it once."""
    kinds: dict[str, list[str]] = {}
    for kind, parts in lines.items():
        if parts:
            kinds.setdefault(texts.joined(parts), []).append(_is(kind))
    return " or on () ".join(f"({text} and on () ({' or on () '.join(of)}))" for text, of in kinds.items())


def _of_each(parts: Callable[[str], list[str]]) -> str:
    return _of_kinds({kind: parts(kind) for kind in (*_KINDS, _HANG)})


def _of_all(line: int) -> str:
    """A line of which only what stands still has another."""
    return _of_kinds({"": _said("slow_rank", line), _HANG: _said(_HANG, line)})


_WHOSE: Final = f"({_is('')} or on () {_is(_HANG)})"


def _place() -> str:
    return filled(asked()["place"], _VALUES)


def _named(job: str, group: str, one_of: str, rank: str) -> str:
    """A text by what the accused is; `${1}` is its name."""
    found = texts.constant(job, _WHOSE)
    for name, text in (("group", group), ("set", one_of), ("rank", rank)):
        found = texts.put(found, text, name, "(.+)")
    return found


def _words() -> str:
    """Of the row of the table, else of the cause; those of a family begin with its name."""
    row = texts.put(_WHOSE, "$card_row", "", "", into="row")
    rows = f'label_join({row}, "of", "/", "row", "cause")'
    said = {**WORDS, "stalled": "stands still"}
    patterns = [
        *((f".*/{name}", text) for name, text in said.items()),
        *((f"{name}/.*", text) for name, text in said.items()),
        *((name.replace("-", "/", 1), text) for name, text in said.items() if name.startswith("history-")),
    ]
    return texts.chosen(rows, "of", [(pattern, f" {beginning(text)}") for pattern, text in patterns])


def _headline() -> str:
    decided = " or ".join(filled(asked()[name], _VALUES) for name in ("decided", "decided_of_hang"))
    severity = texts.put(f"topk(1, {decided})", "[${1}] ", "severity", "(.+)")
    parts = (
        f"({severity} or on () {texts.constant('[suspect] ')})",
        _named("the job", "group ${1}", "one rank of ${1}", "rank ${1}"),
        texts.put(_place(), " on ${1}", "node", "(.+)"),
        _words(),
        f"({_of_each(lambda kind: _said(kind, 0))})",
    )
    return f"{texts.joined(parts)} and on () {_WHOSE}"


def _who() -> str:
    """Where a rank is; of others the first, and how many more: the tables around the card have all."""
    axes = texts.joined(texts.put(_place(), f" {axis}${{1}}", axis, "(.+)") for axis in asked()["axes"])
    place = (
        texts.put(_place(), ", on ${1}", "node", "(.+)"),
        texts.put(_place(), ", ${1}", "gpu_uuid", "(.+)"),
        texts.put(axes, ",${1}", pattern="(.+)"),
    )
    members = {name: filled(text, _VALUES) for name, text in asked()["members"].items()}
    more = {
        name: texts.put(texts.number(f"(count({all_}) - 1 > 0)", "count"), " and ${1} more")
        for name, all_ in members.items()
    }
    job = [texts.put(f"bottomk(1, {members['job']})", ", all ranks, on ${1}", "node"), more["job"]]

    def ranks(of: str) -> list[str]:
        first = f"bottomk(1, {members[of]})"
        info = f"topk(1, argus_rank_info{{{JOB}}} and on (rank) {first})"
        return [
            texts.put(first, ", ranks ${1}", "rank"),
            texts.put(info, " (${1})", "node", "(.+)"),
            more[of],
        ]

    kinds = {"suspect_set": ranks("set"), "slow_link": ranks("group"), "job_regression": job, _HANG: job}
    return f"{texts.joined(place)} or on () {_of_kinds(kinds)}"


def _advice() -> str:
    advice = {**asked()["advice"]}
    other, of_set = advice.pop("other"), advice.pop("suspect_set")
    told = texts.chosen(
        texts.constant(other, _WHOSE),
        "cause",
        ((cause, filled(step, _VALUES)) for cause, step in advice.items()),
    )
    return texts.put(told, of_set, "set", "(.+)")


def _links() -> str:
    of_jobs, of_others = asked()["runbooks_of_jobs"], asked()["runbooks"]
    pages = [
        *((f".*/{cause}", page) for cause, page in of_others.items()),
        ("L1/.*", of_jobs["other"]),
        *((f"L1/{cause}", page) for cause, page in of_jobs.items()),
    ]
    rows = texts.constant(of_jobs["other"], f'label_join({_WHOSE}, "of", "/", "level", "cause")')
    runbook = texts.put(texts.chosen(rows, "of", pages), f"{columns.RUNBOOKS}/${{1}}.md")
    of_rank, of_other = (filled(asked()["trace"][whose], _VALUES) for whose in ("rank", "other"))
    others = " or on () ".join(_is(kind) for kind in ("suspect_set", "slow_link", "job_regression"))
    trace = f"({of_rank} or on () ({of_other} and on () ({others})))"
    return texts.joined([runbook, texts.put(trace, "  $traces/traces/${1}?ui=1", "trace_key", "(.+)")])


def _id() -> str:
    began = {
        kind: next(one.query for one in _facts(of) if one.id == "onset.time")
        for kind, of in (("", "slow_rank"), (_HANG, _HANG))
    }
    name = _named(*(f"av1-$card_cause-{who}-" for who in ("job", "${1}", "${1}", "${1}")))
    since = _of_kinds({kind: [texts.stamp(f"({query})")] for kind, query in began.items()})
    again = texts.constant("  argus-l3-worker explain --job $training_job", _WHOSE)
    named = f"topk(1, argus_rank_info{{{JOB}}} and on () {_WHOSE})"
    where = texts.put(named, " --cluster ${1}", "cluster", "(.+)")
    return texts.joined([name, f"({since})", again, where])


def _lines() -> Iterator[tuple[str, str]]:
    """The label of each line, and its text, of which a line of facts has two signs too many."""
    names = asked()["lines"]
    yield "what", _headline()
    found = {
        1: _who(),
        4: _of_each(lambda kind: _said(kind, 4)),
        7: _of_each(_claims),
        **{line: _of_all(line) for line in (2, 3, 5, 6)},
    }
    for line, text in sorted(found.items()):
        yield names[line], texts.put(f"({text})", "${1}", pattern="..(.*)")
    yield from (("do", _advice()), ("look", _links()), ("id", _id()))


def _row(order: int, line: str, text: str) -> str:
    labelled = texts.put(
        texts.put(f"({text})", line, "", "", into="line"), f"{order:02}", "", "", into="order"
    )
    return f"max by (order, line, text) ({labelled})"


def hidden_variables() -> Iterator[Any]:
    """Whom the card is about, and what its queries name besides."""
    for name in (*_WHO, "cause"):
        yield variables.hidden(f"card_{name}", _WORST, name)
    whose = {name: f'"$card_{name}",{name}!=""' for name in _WHO}
    parts = asked()["part"]
    hanging = f'rank:argus_verdict:active{{{JOB}, {HANGING}, rank="$card_rank", cause="$card_cause"}}'
    part = " or ".join(
        [
            *(filled(parts[name], {**_VALUES, name: matchers}) for name, matchers in whose.items()),
            f"{filled(parts['job'], _VALUES)} and on () {_is('job_regression')}",
            f"topk(1, max by (phase, group, row) ({hanging}))",
        ]
    )
    for name, label in (("phase", "phase"), ("part_group", "group"), ("row", "row")):
        yield variables.hidden(f"card_{name}", part, label)
    yield variables.hidden("card_node", _place(), "node")
    lasted = " or on () ".join(
        f"({one.query})"
        for kind in (_HANG, "slow_rank")
        for one in _facts(kind)
        if one.id == "onset.lasted_s"
    )
    yield variables.hidden("card_lasted", f'count_values("seconds", {lasted} or on () vector(1))', "seconds")
    steps = " or on () ".join(f"(({lasted}) <= {most}) * 0 + {step}" for most, step in asked()["steps"])
    yield variables.hidden("card_step", f'count_values("seconds", {steps} or on () vector(15))', "seconds")


def panel() -> Any:
    return table(
        "The card",
        """
        Whoever costs the job most: what the alert's card and argus-l3-worker explain say, by the same queries
        and in the same words, at the end of the time range. The tables below have all who were found.
        """,
        [_row(order, line, text) for order, (line, text) in enumerate(_lines())],
        {"order": "Order", "line": "Line", "text": "Card"},
        overrides=[
            column("Line", custom__width=80),
            # The one for Grafana up to 12.1, the other from then on.
            column("Order", custom__hidden=True, custom__hideFrom={"viz": True}),
        ],
        sort={"Order": False},
        empty="Nobody stands out, or nobody could be judged: the table on the right below says which",
        headings=False,
    )
