"""Every rule and alert under every circumstance: worlds, boundaries, and which cells they fill."""

from __future__ import annotations

import re

import pytest
import yaml

from rules.beside import play
from rules.matrix import collectives, hosts, iterations, run, runs, straggler
from rules.matrix.boundaries import BOUNDARIES, Boundary
from rules.matrix.exceptions import EXCEPTIONS
from rules.matrix.world import Case, World, cells
from rules.promtool import needs_promtool
from rules.scenario import ROOT

WORLDS = (straggler.WORLD, *collectives.WORLDS, *iterations.WORLDS, *hosts.WORLDS, *runs.WORLDS)
CONCERNS = tuple(sorted({concern for world in WORLDS for concern in world.concerns}))


@needs_promtool
@pytest.mark.beside_others
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_world(world: World) -> None:
    """What its rules say of the faulty job, of a healthy one, at every size and through every disturbance."""
    play(run.document(world), beside=world.batch == World.batch)


@needs_promtool
@pytest.mark.beside_others
@pytest.mark.parametrize("boundary", BOUNDARIES, ids=lambda boundary: boundary.threshold)
def test_boundary(boundary: Boundary) -> None:
    """Below the threshold its rule is silent, above it speaks."""
    play(run.boundary_document(boundary, CONCERNS))


def names() -> list[str]:
    """Every record, and every alert with its severity."""
    files = [*ROOT.glob("rules/argus.*.rules.yaml"), ROOT / "rules/argus.alerts.yaml"]
    rules = [
        rule
        for file in files
        for group in yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader)["groups"]
        for rule in group["rules"]
    ]
    return sorted(
        {
            rule["record"] if "record" in rule else f"ALERTS/{rule['alert']}/{rule['labels']['severity']}"
            for rule in rules
        }
    )


def filled() -> set[tuple[str, Case]]:
    worlds = {cell for world in WORLDS for cell in cells(world)}
    return worlds | {(says.name, Case.BOUNDARY) for boundary in BOUNDARIES for says in boundary.speaks}


def excepted(name: str, case: Case) -> bool:
    return any(case in cases and re.fullmatch(pattern, name) for pattern, cases, _ in EXCEPTIONS)


def test_every_cell_is_filled_or_excepted() -> None:
    """Each rule and alert has each case, or a reason why there is none."""
    have = filled()
    empty = [
        f"{name}: {case.name}"
        for name in names()
        for case in Case
        if (name, case) not in have and not excepted(name, case)
    ]
    assert not empty, "no test, and no reason in rules/matrix/exceptions.py, for\n" + "\n".join(empty)


@pytest.mark.slow
def test_every_exception_is_needed() -> None:
    """A reason that excuses nothing is out of date."""
    have = filled()
    idle = [
        f"{pattern}: {case.name}"
        for pattern, cases, _ in EXCEPTIONS
        for case in cases
        if not any(re.fullmatch(pattern, name) and (name, case) not in have for name in names())
    ]
    assert not idle, "\n".join(idle)
