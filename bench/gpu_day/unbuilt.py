"""Steps for what the product does not have yet. They never pass: there is nothing to measure."""

from __future__ import annotations

from typing import Any

from argus_training.injector import library_path
from bench.gpu_day.result import NotRun
from bench.gpu_day.step import Day


def run(day: Day) -> dict[str, Any]:
    library, injector = day.step.options["library"], library_path()
    built = injector is not None and injector.with_name(library).is_file()
    day.reach(f"looked for {library}: {'there' if built else 'not there'}")
    if built:
        raise NotRun(
            f"{library} is there now, and nobody has written how to measure it: bench/gpu_day/unbuilt.py"
        )
    raise NotRun(f"not built yet: the product has no {library}")
