"""Steps for what the product does not have yet. They never pass: there is nothing to measure."""

from __future__ import annotations

from typing import Any

from argus_core.catalogue import CATALOGUE
from argus_training.injector import library_path
from bench.gpu_day.result import NotRun
from bench.gpu_day.step import Day


def run(day: Day) -> dict[str, Any]:
    family, library = day.step.options.get("family"), day.step.options.get("library")
    built = any(one.name == family for one in CATALOGUE)
    injector = library_path()
    if library and injector is not None:
        built = injector.with_name(library).is_file()
    wanted = family or library
    day.reach(f"looked for {wanted}: {'there' if built else 'not there'}")
    if built:
        raise NotRun(
            f"{wanted} is there now, and nobody has written how to measure it: bench/gpu_day/unbuilt.py"
        )
    raise NotRun(f"not built yet: the product has no {wanted}")
