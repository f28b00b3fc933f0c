"""The line of one scenario, and the file in which lines are kept so that a score can be taken up again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import MISSING, asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from argus_simulator.errors import ArgusSimulatorError
from argus_simulator.lab.scenario import Scenario
from argus_simulator.score.judging import Judgement
from argus_simulator.score.playing import Log
from argus_simulator.score.scene import Scene

SUB_THRESHOLD = 0.01
"""Nobody looks for what costs less of the step; such rows are scored apart."""
LATE_S = 2.0
"""A player that was so far behind its clock could not play what it should."""
MISSED_SCRAPES = 0.05
"""Share of scrapes; with more of them missing the rules saw another job than the one that was played."""
MISSED_EVALUATIONS = 0.1
"""Share of rule evaluations; with more of them missing verdicts come late, or never."""

Class = Literal["high", "low", "sub-threshold", "hidden", "control"]


@dataclass(frozen=True)
class Result:
    """One scenario's line.

    Attributes:
        row: of the fault catalogue.
        scenario: which variant: topology and magnitude.
        kind: which totals it counts in.
        reason: why a hidden row is hidden.
        expected: the ranks to blame; empty: nobody alone.
        expected_causes, expected_teams: any of them is right.
        shape: its parallel dimensions, such as `dp4 tp2`, and its framework where that is not the usual one.
        effect: by how much the fault lengthens the step, less 1; None for a control.
        job_hours: played, and of these healthy.
        lag_seconds, dropped, missed_scrapes, missed_evaluations: whether the machine kept up.
        baselines: what other rules say to the same input: (named ranks) by name of the rule.
        first_right_s: from the onset to the first alert, `info` counts, that names a culprit; None: none did.
        cost: share of the wall time that the rules say the job loses, the median while it was said; None:
            they never said.
        expected_links: (from, to) of slow and broken hops between hosts, where NCCL's plugin is played.
        links: those that were told.
    """

    row: str
    scenario: str
    seed: int
    kind: Class
    reason: str
    expected: tuple[int, ...]
    expected_causes: tuple[str, ...]
    expected_teams: tuple[str, ...]
    level: str
    effect: float | None
    job_hours: float
    steps_played: int
    lag_seconds: float
    dropped: int
    missed_scrapes: float
    missed_evaluations: float
    judgement: Judgement
    baselines: dict[str, tuple[int, ...]] = field(default_factory=dict)
    shape: str = ""
    first_right_s: float | None = None
    cost: float | None = None
    expected_links: tuple[tuple[int, int], ...] = ()
    links: tuple[tuple[int, int], ...] = ()

    @property
    def true_cost(self) -> float | None:
        """Share of the wall time that the fault costs: of the same steps played without it."""
        return None if self.effect is None else self.effect / (1 + self.effect)

    @property
    def key(self) -> tuple[str, int]:
        """What is played once."""
        return self.scenario, self.seed

    @property
    def kept_up(self) -> bool:
        """Whether it was played and scraped as it should be; if not, the machine had too much else to do."""
        return (
            self.lag_seconds < LATE_S
            and not self.dropped
            and self.missed_scrapes <= MISSED_SCRAPES
            and self.missed_evaluations <= MISSED_EVALUATIONS
        )

    def as_dict(self) -> dict[str, Any]:
        """Flat, for JSON."""
        content = asdict(self)
        judgement: dict[str, Any] = content.pop("judgement")
        return {**content, **judgement}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Result:
        """Inverse of `as_dict`; what was not known when it was written has its default.

        Raises:
            TypeError, KeyError: of another version.
        """
        content = {name: _tuples(value) for name, value in content.items()}
        judged = {
            name: content.pop(name)
            for name, field in Judgement.__dataclass_fields__.items()
            if name in content or field.default is MISSING
        }
        return cls(**content, judgement=Judgement(**judged))


def result_of(
    scene: Scene,
    log: Log,
    judgement: Judgement,
    *,
    missed_scrapes: float,
    missed_evaluations: float,
    baselines: dict[str, tuple[int, ...]],
    first_right_s: float | None,
    cost: float | None,
    links: tuple[tuple[int, int], ...],
) -> Result:
    """The line of a scenario that was played."""
    truth = scene.truth
    return Result(
        row=truth.row,
        scenario=scene.name,
        seed=scene.seed,
        kind=_kind(scene, log.effect),
        reason=truth.needs,
        expected=tuple(sorted(truth.culprits)),
        expected_causes=tuple(cause for finding in truth.findings for cause in finding.causes),
        expected_teams=tuple(team for finding in truth.findings for team in finding.teams),
        level=",".join(dict.fromkeys(finding.level for finding in truth.findings)),
        effect=log.effect,
        job_hours=(log.end - log.start) / 3600,
        steps_played=len(log.step_ends),
        lag_seconds=log.lag_seconds,
        dropped=log.dropped,
        missed_scrapes=missed_scrapes,
        missed_evaluations=missed_evaluations,
        judgement=judgement,
        baselines=baselines,
        shape=_shape(scene.scenario),
        first_right_s=first_right_s,
        cost=cost,
        expected_links=truth.links if scene.playable.signals == "nccl" else (),
        links=links,
    )


def _shape(scenario: Scenario) -> str:
    sizes = {name: getattr(scenario.topology, name) for name in ("dp", "tp", "pp", "ep")}
    words = [f"{name}{size}" for name, size in sizes.items() if size > 1]
    return " ".join([*words, *filter(None, [scenario.model.framework])])


def _kind(scene: Scene, effect: float | None) -> Class:
    truth = scene.truth
    if truth.control:
        return "control"
    if not truth.visible:
        return "hidden"
    if effect is not None and effect < SUB_THRESHOLD:
        return "sub-threshold"
    return truth.severity


def _tuples(value: Any) -> Any:
    """JSON knows lists only."""
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    if isinstance(value, dict):
        return {name: _tuples(item) for name, item in value.items()}
    return value


class ResultFile:
    """Lines of JSON, one a scenario, appended as they come.

    Args:
        path: made where it does not exist.
        product: what was measured: lines of another product are not taken up again.
    """

    def __init__(self, path: Path, product: str) -> None:
        self._path = path
        self._product = product

    def done(self) -> dict[tuple[str, int], Result]:
        """What the file has already, by scenario and seed.

        Raises:
            ArgusSimulatorError: it is not such a file.
        """
        return {result.key: result for result in self._read()}

    def add(self, result: Result) -> None:
        """Keep a line, unless it has to be played again on a machine with more time."""
        if not result.kept_up:
            return
        with self._path.open("a") as file:
            file.write(json.dumps({"product": self._product, **result.as_dict()}) + "\n")

    def _read(self) -> Iterator[Result]:
        if not self._path.exists():
            return
        for number, line in enumerate(self._path.read_text().splitlines(), 1):
            try:
                content = json.loads(line)
                product = content.pop("product")
                result = Result.from_dict(content)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ArgusSimulatorError(
                    f"{self._path}, line {number}: not a line of a score of this version ({error!r}); "
                    "name another file with --resume"
                ) from error
            if product == self._product:
                yield result
