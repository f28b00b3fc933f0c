"""What the hooks sent of a program, in the form in which it is recorded: the simulator plays nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median_low

from argus_core import wire

from .measured import SOMETIMES, Rank


def signals(ranks: Sequence[Rank]) -> list[dict[str, object]]:
    """Every phase: its kind and group, for whom it may wait, and its spans in each rank's median iteration.

    Phases of the start alone (a model that is distributed) are none of training's.
    """
    often = [_in_the_median_iteration(rank) for rank in ranks]
    return [
        {
            "phase": phase,
            "kind": kind,
            "group": group,
            "waits": next(rank.said.waits[phase, kind] for rank in ranks if (phase, kind) in rank.said.waits),
            "spans": [counts[phase, kind, group] for counts in often],
        }
        for phase, kind, group in sorted(set().union(*often))
    ]


def _in_the_median_iteration(rank: Rank) -> Counter[tuple[str, str, str]]:
    steps = {iteration.step for iteration in rank.said.iterations[1:]}
    counted = Counter(
        (phase, wire.Kind(span.kind).name.lower(), group, span.step)
        for phase, group, span in rank.said.spans
        if span.step in steps and phase not in SOMETIMES
    )
    kinds = {key[:3] for key in counted}
    often = Counter({key: median_low([counted[*key, step] for step in steps]) for key in kinds})
    return +often
