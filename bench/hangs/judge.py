"""What was told of a case: who was named, when, and who should not have been."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from argus_simulator.fast_play.alerts import Spell
from argus_simulator.fast_play.evaluate import Evaluator
from argus_simulator.fast_play.rules import read_rules
from argus_simulator.fast_play.storage import Storage, labels_of_text
from bench.hangs.cases import Case
from bench.hangs.network import Lost
from bench.hangs.signals import Played, play

_BEGIN_MS: Final = 1_700_000_000_000
STALLED: Final = "ArgusTrainingStalled"
_OF_ARGUS: Final = frozenset(
    {"ArgusRulesBehind", "ArgusL3WorkerBehind", "ArgusRecordsDropped", "ArgusChannelDown"}
)


@dataclass(frozen=True)
class Judgement:
    """Of one case.

    Attributes:
        right: one of the culprits was named by a page, and nobody else; or where it is a GPU among others of
            a host, of whom NCCL's plugin tells, the host and no rank; where there are none, the page
            names nobody (as it may where most ranks died, or a host is gone), and no other group than the one
            whose collective it is, and where something is lost
            between two hosts it names both ranks and hosts, in the right direction; of a pause nothing is
            told at all.
        innocents: ranks that any message named, and that are not to blame.
        page_s: from the end of stallMinSeconds to the first page; None: none came.
        named: what the pages said, for people.
    """

    variant: str
    name: str
    right: bool
    innocents: frozenset[int]
    page_s: float | None
    named: tuple[str, ...]


def judge(played: Played, spells: Sequence[Spell], network: Sequence[Mapping[str, str]] = ()) -> Judgement:
    """By all alerts that fired, of every severity.

    Args:
        network: what pages say of the network: labels of the series that their text asks for.
    """
    case = played.case
    told = [(dict(one.labels), one.begin_ms / 1000) for one in spells if one.state == "firing"]
    mine = [
        (labels, at)
        for labels, at in told
        if labels.get("training_job") == case.name and labels["alertname"] not in _OF_ARGUS
    ]
    ranks = {int(labels["rank"]) for labels, _ in mine if labels.get("rank")}
    pages = [
        (labels, at) for labels, at in mine if (labels["alertname"], labels["severity"]) == (STALLED, "page")
    ]
    named = {int(labels["rank"]) for labels, _ in pages if labels.get("rank")}
    groups = {labels["group"] for labels, _ in pages if labels.get("group")}
    links = {
        (one["rank"], one["to_rank"], one["node"], one["to_node"]) for one in network if "to_rank" in one
    }
    hosts = {one["node"] for one in network if "to_rank" not in one}
    if case.kind == "pause":
        right = not mine
    elif case.lost is not None:
        right = bool(pages) and not named and not hosts and links == {_link(case, case.lost)}
    elif case.variant == "network, inside a host" and hosts:
        right = bool(pages) and not named and not links and hosts == _hosts(case, [case.wrong[0][1].rank])
    elif case.variant == "gpu, among others of its host" and not named:
        right = bool(pages) and not links and hosts == _hosts(case, case.culprits)
    elif case.kind in ("most", "gone"):
        right = bool(pages) and named <= case.culprits
    elif case.culprits:
        right = bool(named) and named <= case.culprits
    else:
        right = bool(pages) and not (named or links or hosts) and groups <= {case.group}
    return Judgement(
        case.variant,
        case.name,
        right,
        frozenset(ranks - case.culprits),
        min((at for _, at in pages), default=None) and min(at for _, at in pages) - played.stalled_s,
        tuple(
            sorted(
                {
                    " ".join(
                        f"{key}={labels[key]}"
                        for key in ("alertname", "severity", "cause", "rank", "phase", "group")
                        if labels.get(key)
                    )
                    + f" at {at - played.stalled_s:.0f} s"
                    for labels, at in mine
                }
            )
        )
        + tuple(" ".join(f"{key}={one[key]}" for key in sorted(one)) for one in network),
    )


def _link(case: Case, lost: Lost) -> tuple[str, str, str, str]:
    """From whom to whom: data by the ring, and word of room the other way."""
    ends = (lost.rank, lost.to) if lost.lacks == "data" else (lost.to, lost.rank)
    first, second = (str(rank) for rank in ends)
    return first, second, *(case.topology.host(rank) for rank in ends)  # type: ignore[return-value]


def _hosts(case: Case, ranks: Iterable[int]) -> set[str]:
    return {case.topology.host(rank) for rank in ranks}


def _of_network(storage: Storage, played: Played) -> list[dict[str, str]]:
    """What texts of pages ask for, at the end of the watch: nothing of it moves any more."""
    job = f'training_job="{played.case.name}"'
    found = storage.at(
        f'max by (rank, node, to_rank, to_node) (rank:argus_stall_suspect:bool{{{job}, stage="link"}}) '
        f'or max by (node) (rank:argus_stall_suspect:bool{{{job}, stage="still"}})',
        round(1000 * played.end_s) - 30_000,
    )
    return [dict(labels_of_text(text)) for text in found]


def judge_together(batch: Sequence[Case], *, rules: Path) -> tuple[list[Judgement], dict[str, str]]:
    """Play cases side by side, evaluate the rules of a folder over them, and judge each.

    Returns:
        With the rules whose evaluation failed at some moment, and why.
    """
    files = sorted(rules.glob("*.yaml"))
    with tempfile.TemporaryDirectory(prefix="argus-hangs-") as name, Storage(Path(name)) as storage:
        played = []
        for one in play(batch, _BEGIN_MS, Path(name) / "proc"):
            storage.write(one.series)
            played.append(one)
        evaluator = Evaluator(storage, read_rules(files))
        evaluator.advance(_BEGIN_MS, round(1000 * max(one.end_s for one in played)))
        spells = evaluator.spells()
        judged = [judge(one, spells, _of_network(storage, one)) for one in played]
        return judged, evaluator.failures
