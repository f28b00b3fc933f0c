"""Who looked guilty and is not named, and what explains it; of which ranks one is meant."""

from __future__ import annotations

from typing import Final

from argus_dashboards import columns
from argus_dashboards.panels import table
from argus_dashboards.promql import EVIDENCE, JOB
from argus_dashboards.theme import EXACT, FACT, steps

_ROWS: Final = 20
_SHOWN: Final = 50
_EXPLAINED = f'{JOB}, by!~"activity|stall|coverage"'
"""By another cause: the rest excuses everybody, as nothing can be said."""
# A rank that its own other cause explains is one of many such; a rank that explains others stands by itself.
_OF_OTHERS = f'rank:argus_exclusion:lost_ratio{{{_EXPLAINED}, at="job"}}'
_OF_THEMSELVES = f'rank:argus_exclusion:lost_ratio{{{_EXPLAINED}, at="rank"}}'


_BY_CAUSE = (
    f"count by (cause, by, by_rank) (count by (rank, set, group, cause, by, by_rank) ({_OF_OTHERS}))"
    f" or count by (cause, by) (count by (rank, set, group, cause, by) ({_OF_THEMSELVES}))"
)

BY_CAUSE: Final = table(
    "Who is excused, and by whom",
    f"""
    Ranks (sets, groups) that look guilty and are not named, as something that costs about as much or more
    explains what they lose: of the rank on the right, of a group or the job, or (without one) of the same
    rank. They are well, or wrong in what is named for them: leave them alone. At most {_ROWS} kinds.
    """,
    [f"topk({_ROWS}, {_BY_CAUSE})"],
    {
        "Value": "Ranks",
        "cause": "Looks as if it",
        "by": "Explained by one that",
        "by_rank": "Rank",
    },
    overrides=[
        columns.value("Ranks", EXACT, steps(FACT), 60, 0),
        columns.words("Looks as if it", 380),
        columns.words("Explained by one that", 350),
        columns.rank_number(),
    ],
    sort="Ranks",
    empty="Nobody else looks guilty",
)

_WHO = "rank, phase, group, set, cause"
_MINE = f'{JOB}, rank=~"$rank|"'
OF_RANKS: Final = table(
    "Why these ranks are not named",
    f"""
    Of the ranks chosen above (type any number there): what was seen of each, what it loses by it, and what
    explains that instead. A rank that is missing here shows nothing, or is named above. Without a rank: a
    set, a group, or the whole job. At most {_SHOWN} rows.
    """,
    [
        f"topk({_SHOWN},\n"
        f"  max by ({_WHO}, by, by_rank) (rank:argus_exclusion:lost_ratio{{{_MINE}}}) ^ 0\n"
        f"  * on ({_WHO}) group_left () max by ({_WHO}) ({EVIDENCE}{{{_MINE}}})\n"
        f'  or 0 * max by (cause, by) (rank:argus_exclusion:lost_ratio{{{JOB}, cause="all"}})\n'
        ")"
    ],
    {
        "rank": "Rank",
        "cause": "Looks as if it",
        "Value": columns.LOST,
        "by": "Explained by one that",
        "by_rank": "of rank",
        "phase": "Phase",
        "group": "Group",
        "set": "Set",
    },
    overrides=[
        columns.rank_number(),
        columns.words("Looks as if it", 450),
        columns.LOST_SHARE,
        columns.words("Explained by one that", 390),
    ],
    sort=columns.LOST,
    empty="Nothing of these ranks is explained by something else",
)

_OF_SETS = f'{JOB}, cause=~"suspect-set|suspect-many"'
SETS: Final = table(
    "Suspect sets",
    f"""
    Ranks that stand out in a phase in which they may wait for one another: one of the set is slow, and
    phases do not tell which. Layers, kernels or the set's traces do. A set of more than 8 ranks, or of a
    quarter of the job, is nobody's page: it is only listed here. At most {_ROWS} ranks.
    """,
    [f"topk({_ROWS}, max by (set, phase, rank, cause) ({EVIDENCE}{{{_OF_SETS}}}))"],
    {"set": "Set", "phase": "Phase", "rank": "Rank", "Value": columns.LOST, "cause": "What it is"},
    overrides=[columns.RANK, columns.LOST_SHARE, columns.words("What it is", 330)],
    sort=columns.LOST,
    empty="No set: every rank that stands out does so by itself",
)
