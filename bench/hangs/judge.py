"""What was told of a case: who was named, when, and who should not have been."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from argus_simulator.fast_play.alerts import Spell
from argus_simulator.fast_play.evaluate import Evaluator
from argus_simulator.fast_play.rules import read_rules
from argus_simulator.fast_play.storage import Storage
from bench.hangs.cases import Case
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
        right: one of the culprits was named by a page, and nobody else; where there are none, the page names
            nobody, and no other group than the one whose collective it is; of a pause nothing is told at all.
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


def judge(played: Played, spells: Sequence[Spell]) -> Judgement:
    """By all alerts that fired, of every severity."""
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
    if case.kind == "pause":
        right = not mine
    elif case.culprits:
        right = bool(named) and named <= case.culprits
    else:
        right = bool(pages) and not named and groups <= {case.group}
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
        ),
    )


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
        return [judge(one, spells) for one in played], evaluator.failures
