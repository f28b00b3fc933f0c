"""Runs one step in a process of its own and leaves what it measured in a file: `runner` is its parent.

    python -m bench.gpu_day.child REQUEST

REQUEST is a pickled `Request`: the parent wrote it a moment ago, for this process alone.
"""

from __future__ import annotations

import importlib
import json
import pickle
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gpu_day.result import NotRun, plain
from bench.gpu_day.step import Day, Step


@dataclass(frozen=True)
class Request:
    step: Step
    dry: bool
    folder: Path
    answer: Path
    turns_s: float


def main() -> int:
    request: Request = pickle.loads(Path(sys.argv[1]).read_bytes())
    answer: dict[str, Any] = {"measured": {}, "not_run": None}
    with tempfile.TemporaryDirectory(prefix="gpu-day-") as work:
        day = Day(request.step, request.dry, request.folder, Path(work), turns_s=request.turns_s)
        try:
            if request.dry:
                from bench.gpu_day.stand_ins import libraries

                day.stand_ins = libraries()
                day.reach("stand-ins for CUDA and CUPTI built")
            answer["measured"] = plain(importlib.import_module(request.step.module).run(day))
        except NotRun as reason:
            answer["not_run"] = str(reason)
        finally:
            answer["reached"] = day.reached
    request.answer.write_text(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
