"""Ground truth: what a perfect detector would say. Kept apart from everything that is sent.

Only the judge of a run may read it. In a scenario file it is the block `truth`; its ranks follow from the
faults, so that a seed that moves a fault moves the truth with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from argus_core.settings import setting
from argus_simulator.engine.faults import Dimension, Fault
from argus_simulator.engine.ring import links_of
from argus_simulator.topology import GROUP_DIMENSIONS, Topology

Team = Literal["operations", "infrastructure", "algorithm"]
Scope = Literal["ranks", "group", "host", "rack", "job"]
Level = Literal["L1", "L2", "L3", "stacks", "issue-latency", "void", "util", "history", "hang"]


@dataclass(frozen=True)
class FindingSettings:
    """One thing that is wrong."""

    of: tuple[str, ...] = setting((), "names of the faults whose ranks are to blame; none: all of them")
    scope: Scope = setting("ranks", "whom the verdict names: ranks, a process group, a host, or the job")
    dimension: Dimension = setting("", "scope group: of which dimension")
    causes: tuple[str, ...] = setting((), "causes of which any is right, most specific first")
    team: Team = setting("operations", "who has to act first")
    also_teams: tuple[Team, ...] = setting((), "teams that are right too")
    level: Level = setting("L2", "where the product is expected to see it")


@dataclass(frozen=True)
class TruthSettings:
    """The block `truth` of a scenario."""

    row: str = setting("", "row of the fault catalogue")
    source: str = setting("", "where the row comes from")
    severity: Literal["high", "low"] = setting("high", "high: gated by the targets; low: reported only")
    control: bool = setting(False, "nothing is wrong: whoever is accused is accused falsely")
    allowed: tuple[str, ...] = setting(
        (),
        "what may fire nevertheless: alert names, or `info` for any info that names no rank",
    )
    needs: str = setting("", "what the product lacks to see it (UTIL, registers); empty: it can be seen")
    findings: tuple[FindingSettings, ...] = setting((), "what is wrong; a control has none")

    def __post_init__(self) -> None:
        if self.control and self.findings:
            raise ValueError("findings: a control has none; leave findings out or control false")


@dataclass(frozen=True)
class Finding:
    """What should be said of one fault.

    Attributes:
        ranks: culprits, or members of the culprit group or host; empty where nobody but the job is to blame.
        groups: names of the culprit groups as the exporter labels them; empty but for scope `group`.
        onset_step, end_step: when it is there; no end: to the end of the run.
        links: (from, to) of hops between hosts that are slow or broken; none where all of a group are.
    """

    faults: tuple[str, ...]
    scope: Scope
    ranks: tuple[int, ...]
    groups: tuple[str, ...]
    causes: tuple[str, ...]
    teams: tuple[Team, ...]
    level: Level
    onset_step: int
    end_step: int | None
    links: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Truth:
    """The truth of one scenario. `teams[0]` of a finding is the one that has to act first."""

    row: str
    source: str
    severity: Literal["high", "low"]
    control: bool
    allowed: tuple[str, ...]
    needs: str
    findings: tuple[Finding, ...]

    @property
    def visible(self) -> bool:
        """Whether the product has the signal that the row needs."""
        return not self.needs

    @property
    def culprits(self) -> frozenset[int]:
        """All ranks that may be named."""
        return frozenset(rank for finding in self.findings for rank in finding.ranks)

    @property
    def links(self) -> tuple[tuple[int, int], ...]:
        """All hops that may be named."""
        return tuple(sorted({link for finding in self.findings for link in finding.links}))


def resolve(settings: TruthSettings, faults: Mapping[str, Fault], topology: Topology) -> Truth:
    """The truth of a scenario whose faults have their ranks.

    Raises:
        ValueError: a finding names a fault that does not exist.
    """
    findings = []
    for number, finding in enumerate(settings.findings):
        names = finding.of or tuple(faults)
        for name in names:
            if name not in faults:
                raise ValueError(
                    f"findings[{number}].of names {name!r}; allowed: {', '.join(faults) or 'no fault exists'}"
                )
        own = [faults[name] for name in names]
        ranks = sorted({rank for fault in own for rank in fault.ranks})
        groups: list[str] = []
        if finding.scope == "group":
            dimension = finding.dimension or next((f.dimension for f in own if f.dimension), "dp")
            groups = sorted({topology.group(rank, dimension) for rank in ranks})
            ranks = sorted(
                {member for group in groups for member in topology.group_members(group, dimension)}
            )
        elif finding.scope == "job":
            ranks = []
        ends = [fault.end_step for fault in own]
        findings.append(
            Finding(
                names, finding.scope, tuple(ranks), tuple(groups), finding.causes,
                (finding.team, *finding.also_teams), finding.level,
                min((fault.onset_step for fault in own), default=0),
                None if None in ends or not ends else max(end for end in ends if end is not None),
                tuple(sorted(link for fault in own for link in _links(fault, topology))),
            )
        )  # fmt: skip
    return Truth(
        settings.row, settings.source, settings.severity, settings.control, settings.allowed, settings.needs,
        tuple(findings),
    )  # fmt: skip


def _links(fault: Fault, topology: Topology) -> set[tuple[int, int]]:
    """Hops of the groups that hold one of its ranks."""
    dimension = {"link": fault.dimension, "hang": fault.phases.partition("-")[0]}.get(
        fault.mechanism or "", ""
    )
    if dimension not in GROUP_DIMENSIONS or dimension == "pp":
        return set()
    every: set[tuple[int, int]] = set()
    found: set[tuple[int, int]] = set()
    for group in {topology.group(rank, dimension) for rank in fault.ranks}:
        members = topology.group_members(group, dimension)
        every |= links_of(topology, members, members, inward=fault.inward)
        found |= links_of(topology, members, fault.ranks, inward=fault.inward)
    return found if found != every else set()


def write_truth(path: Path, truth: Truth) -> None:
    """One JSON document."""
    path.write_text(json.dumps(asdict(truth), indent=2) + "\n")
