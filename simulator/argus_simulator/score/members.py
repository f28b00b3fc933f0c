"""Which ranks an alert accuses together, a set or a group: looked up in the series that the job published."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from argus_simulator.stack import Samples

_OF_GROUP = (
    "count by (rank, group) "
    "(max_over_time(argus_phase_duration_seconds_count{{training_job={job}}}[{window}s]))"
)
_OF_SET = 'count by (rank, set) (max_over_time(argus_phase_info{{training_job={job},set!=""}}[{window}s]))'
_INFO = (
    "max by (rank, node, rack, dp, tp, pp, ep, role) "
    "(max_over_time(argus_rank_info{{training_job={job}}}[{window}s]))"
)


class JobMembers:
    """Sets of suspects, process groups and coordinates of one job.

    Args:
        query: an instant query.
        job: whose.
        window_s: how far back its series lie.
    """

    def __init__(self, query: Callable[[str], Samples], job: str, window_s: float) -> None:
        words = {"job": f'"{job}"', "window": str(int(window_s) + 1)}
        self._info = [labels for labels, _ in query(_INFO.format(**words))]
        experts = len({labels["ep"] for labels in self._info if labels.get("ep")})
        self._info = [labels | {"edp": _expert_replica(labels, experts)} for labels in self._info]
        self._all = frozenset(int(labels["rank"]) for labels in self._info)
        self._groups = _ranks_by("group", query(_OF_GROUP.format(**words)))
        self._sets = _ranks_by("set", query(_OF_SET.format(**words)))

    def __call__(self, labels: Mapping[str, str]) -> frozenset[int]:
        """Ranks of the set, group or coordinate in the labels; nobody where that is everybody or unknown."""
        if labels.get("set"):
            found = frozenset(self._sets.get(labels["set"], ()))
        elif "coordinate" in labels:
            found = frozenset(
                int(info["rank"])
                for info in self._info
                if info.get(labels["coordinate"]) == labels.get("value")
                and _plays(info, labels.get("role", ""))
            )
        elif labels.get("alertname") in _GROUP_ALERTS:
            found = frozenset(self._groups.get(labels.get("group", ""), ()))
        else:
            found = frozenset()
        return frozenset() if found == self._all else found


_GROUP_ALERTS = frozenset({"ArgusCollectiveSlowLink"})
"""These accuse the group in their label; on others it only says where."""


def _ranks_by(label: str, samples: Samples) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for labels, _ in samples:
        found.setdefault(labels.get(label, ""), set()).add(int(labels["rank"]))
    return found


def _expert_replica(info: Mapping[str, str], experts: int) -> str:
    """`edp`, which no series says: the ranks that share one copy of all experts lie side by side."""
    dp = info.get("dp", "")
    return str(int(dp) // experts) if experts and dp.isdecimal() else ""


def _plays(info: Mapping[str, str], role: str) -> bool:
    """Roles that differ in their tensor index alone are compared together, under what else they say."""
    own = info.get("role", "")
    return not role or role in (own, ".".join(part for part in own.split(".") if part[:2] != "tp"))
