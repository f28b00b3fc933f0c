"""What ARGUS says of the rank, and who it is."""

from __future__ import annotations

from typing import Final

from argus_dashboards import columns
from argus_dashboards.layout import Line, Section
from argus_dashboards.panels import stat, table
from argus_dashboards.promql import (
    ALERTS,
    EVIDENCE,
    NOT_COMM,
    RANKS,
    WHOSE,
    against_peers,
    filled,
    findings,
    named_phases,
    with_labels,
    zero_if,
)
from argus_dashboards.theme import (
    BAD,
    COUNT,
    CULPRIT_RATIO,
    FACT,
    FAST_RATIO,
    GOOD,
    NOTICE,
    NOTICE_RATIO,
    RATIO,
    SEVERITY_COLOURS,
    TICKET,
    TIMES,
    codes,
    steps,
)

_WATCHED = zero_if(f"argus_rank_up{{{RANKS}}}")
_VERDICT = stat(
    "Verdict",
    """
    holds the job up: act on it. waits for another: leave it alone. none:
    neither. What was seen of it, and what explains that, is below. no data: nothing reports the rank.
    """,
    f'max(2 * rank:argus_verdict:active{{{RANKS}, verdict="culprit"}}'
    f' or rank:argus_verdict:active{{{RANKS}, verdict="victim"}}) or {_WATCHED}',
    unit=COUNT,
    mappings=codes({"none": GOOD, "waits for another": FACT, "holds the job up": BAD}),
    background=True,
)
_LOST = stat(
    "Wall time lost",
    """
    Share of the job's time that it waits for this rank, by all that the rank is named for. Times the number
    of GPUs: what the rank costs.
    """,
    f"max(sum by (rank) ({findings(RANKS)})) or {_WATCHED}",
    unit=RATIO,
    decimals=1,
    thresholds=steps(GOOD, {NOTICE: 0.02, TICKET: 0.05, BAD: 0.2}),
)
_WORST_PHASE = stat(
    "Slowest phase against peers",
    """
    Largest duration of a compute or host phase over its group's median. Near 1 the rank works like its peers
    and what is slow is elsewhere.
    """,
    f"max({against_peers(f'{RANKS}, {NOT_COMM}')})",
    unit=TIMES,
    decimals=2,
    thresholds=steps(GOOD, {NOTICE: NOTICE_RATIO, TICKET: CULPRIT_RATIO, BAD: FAST_RATIO}),
)
_SHIFT = stat(
    "All compute kernels against the role",
    """
    Time-weighted shift of the rank's compute kernels. Above 3 % the GPU is slow as a whole: look at clocks
    and heat below. Near 0 with one slow kernel: that kernel or its input.
    """,
    f"max(argus_l3_rank_shift_ratio{{{RANKS}}})",
    unit=RATIO,
    decimals=1,
    thresholds=steps(GOOD, {NOTICE: 0.03, BAD: 0.1}),
    no_value="not compared",
)
_UP = stat(
    "Producer",
    """
    connected: the training process speaks to its exporter. lost: it ended without saying so. no data: the
    exporter is away, or the rank left orderly.
    """,
    f"max(argus_rank_up{{{RANKS}}})",
    unit=COUNT,
    mappings=codes({"lost": BAD, "connected": GOOD}),
    background=True,
)

_WHO = table(
    "Who it is",
    "Place in the cluster and in the job. Ranks that share a node or a coordinate share its faults.",
    [
        "max by (rank, node, gpu_uuid, role, dp, tp, pp, ep) (argus_rank_info{" + RANKS + "})",
    ],
    {
        "rank": "Rank",
        "node": "Host",
        "role": "Role",
        "dp": "dp",
        "tp": "tp",
        "pp": "pp",
        "ep": "ep",
        "gpu_uuid": "GPU",
    },
    overrides=[columns.rank_number(), columns.GPU, columns.HOST, columns.PLACES],
    empty="No rank of this number reports",
)

_FIRING = f'ALERTS{{{ALERTS}, rank=~"$rank", alertstate="firing"}}'
_NAMED = table(
    "What it is named for",
    """
    What the job loses to this rank, by cause, in all of its phases together; the costliest phase is named.
    The runbook of the alert says what to do.
    """,
    [
        filled(
            with_labels(
                "alertname, severity",
                WHOSE,
                with_labels("row, phase", WHOSE, findings(RANKS), named_phases(RANKS)),
                _FIRING,
                of=findings(RANKS),
            ),
            "alertname",
            columns.ALL_RUNBOOKS,
        )
    ],
    {
        "Value": columns.LOST,
        "severity": "Told",
        "row": "What it is",
        "cause": "Cause",
        "team": "Team",
        "alertname": "Runbook",
        "phase": "Phase",
    },
    overrides=[
        columns.LOST_SHARE,
        columns.text("Told", SEVERITY_COLOURS, 80),
        columns.words("What it is", 230),
        columns.TEAM,
        columns.RUNBOOK,
        columns.CAUSE,
    ],
    sort=columns.LOST,
    empty="Nothing: this rank costs the job no time, or something else explains what it seems to cost",
)

_WHO_WHAT = "rank, phase, group, set, cause"
_SEEN = table(
    "What was seen of it, and what explains it",
    """
    All evidence against this rank, by what the job would lose to it, and what explains it instead: another
    cause of the same rank, or another rank. What nothing explains is named above, but for what only
    excuses: a rank's own excess, more work, a wait.
    """,
    [
        with_labels(
            "by, by_rank",
            _WHO_WHAT,
            f"max by ({_WHO_WHAT}) ({EVIDENCE}{{{RANKS}}})",
            f"rank:argus_exclusion:lost_ratio{{{RANKS}}}",
        )
    ],
    {
        "Value": columns.LOST,
        "cause": "Looks as if it",
        "phase": "Phase",
        "group": "Group",
        "set": "Set",
        "by": "Explained by one that",
        "by_rank": "Rank",
    },
    overrides=[
        columns.LOST_SHARE,
        columns.words("Looks as if it", 460),
        columns.words("Explained by one that", 460),
        columns.rank_number(),
    ],
    sort=columns.LOST,
    empty="Nothing: it works like its peers",
)

SECTION: Final = Section(
    1,
    "Rank $rank",
    [
        Line(4, [(5, _VERDICT), (5, _LOST), (5, _WORST_PHASE), (5, _SHIFT), (4, _UP)]),
        Line(4, [(11, _WHO), (13, _NAMED)]),
        Line(6, [(24, _SEEN)]),
    ],
)
