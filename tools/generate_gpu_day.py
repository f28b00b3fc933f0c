"""What the day on a GPU showed, in the pages that speak of it: bench/gpu_day/steps.py and gpu-day/*.json.

A page has `<!-- gpu-day: BLOCK -->` where a block begins and `<!-- end -->` where it ends; what is between is
written here, the rest by hand. A step that has no result of a GPU says "not yet".
`python -m tools.generate_gpu_day` writes them; `--check` exits 1 and names what is out of date.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.gpu_day.result import Result, read
from bench.gpu_day.step import Step
from bench.gpu_day.steps import STEPS

from tools.generated import write_or_check

REPOSITORY: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = REPOSITORY / "gpu-day"
PAGES: Final = ("gpu-day.md", "status.md", "overhead.md", "kernels.md")
NOT_YET: Final = "not yet"
_BLOCK: Final = re.compile(r"(<!-- gpu-day: (\w+) -->\n).*?(<!-- end -->\n)", re.S)
_KERNEL_STEPS: Final = (
    "load",
    "load-transformers",
    "load-lightning",
    "exits",
    "kernels",
    "graphs",
    "streams",
    "windows",
    "clock",
    "fallback",
    "records",
)
_LAUNCHES: Final = {
    "host_us": "a launch, on the host",
    "gpu_us": "a kernel, on the GPU, behind others",
    "graph_us": "a kernel of a CUDA graph, on the GPU",
}

Results = Mapping[str, Result]
"""By the step's name; only what a GPU was there for."""


def results(folder: Path = RESULTS) -> Results:
    """What was measured: ok or failed. A step that was not run has shown nothing."""
    found = (read(folder / f"{step.name}.json") for step in STEPS)
    return {
        one.step: one for one in found if one is not None and one.outcome != "not run" and one.dry is None
    }


def steps_block(seen: Results) -> list[str]:
    """Each step of the day, in order."""
    lines = ["| step | proves | predicted | gates | outcome |", "|---|---|---|---|---|"]
    for step in STEPS:
        gates = ", ".join(f"{name} {limit}" for name, limit in step.gates.items())
        lines.append(
            f"| `{step.name}` | {step.proves} | {step.prediction} | {gates} | {_outcome(step, seen)} |"
        )
    return lines


def status_block(seen: Results) -> list[str]:
    """One sentence, and the machines."""
    by_outcome = {
        outcome: sum(one.outcome == outcome for one in seen.values()) for outcome in ("ok", "failed")
    }
    if not seen:
        return [f"The day on a GPU ([gpu-day.md](gpu-day.md)): {NOT_YET}; 0 of {len(STEPS)} steps were run."]
    return [
        f"The day on a GPU ([gpu-day.md](gpu-day.md)): of {len(STEPS)} steps {by_outcome['ok']} are ok, "
        f"{by_outcome['failed']} failed and {len(STEPS) - len(seen)} were not run, on {_machines(seen)}."
    ]


def overhead_block(seen: Results) -> list[str]:
    """Per cent of step time, by step and channels, with the median and p99 of the steps."""
    lines = [
        "| step of the day | without ARGUS, median (p99) | phases | and kernels | and stacks | and NCCL | "
        "goal |",
        "|---|---|---|---|---|---|---|",
    ]
    for step in STEPS:
        if step.name.startswith("overhead"):
            one = seen.get(step.name)
            cells = [_added(one, channels) for channels in ("phases", "kernels", "stacks", "nccl")]
            lines.append(f"| `{step.name}` | {_step_time(one)} | {' | '.join(cells)} | {_goal(one)} |")
    return lines


def kernels_block(seen: Results) -> list[str]:
    """The steps about kernels, with what each gate measured."""
    lines = ["| step of the day | outcome | measured |", "|---|---|---|"]
    for step in STEPS:
        if step.name in _KERNEL_STEPS:
            one = seen.get(step.name)
            measured = (
                ", ".join(
                    f"{name} {value:g}" for name, (value, _, _) in one.gates.items() if value is not None
                )
                if one
                else ""
            )
            lines.append(f"| `{step.name}` | {_outcome(step, seen)} | {measured} |")
    return lines


def launches_block(seen: Results) -> list[str]:
    """Microseconds that the kernels channel adds, where it adds them."""
    lines = ["| what | without | added | added with issue latencies |", "|---|---|---|---|"]
    one = seen.get("launches")
    for kind, what in _LAUNCHES.items():
        cells = [NOT_YET] * 3
        if one is not None:
            told = one.measured
            cells = [f"{told[f'{kind}_without']:.2f}"]
            for of in (kind, f"{kind}_with_latency"):
                low, high = told[f"{of}_added_low"], told[f"{of}_added_high"]
                cells.append(f"{told[f'{of}_added']:.3f} ({low:.3f} to {high:.3f})")
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return lines


BLOCKS: Final = {
    "steps": steps_block,
    "status": status_block,
    "overhead": overhead_block,
    "kernels": kernels_block,
    "launches": launches_block,
}


def page(text: str, seen: Results) -> str:
    """A page with its blocks as they are to be.

    Raises:
        KeyError: it asks for a block that there is not.
    """

    def block(found: re.Match[str]) -> str:
        lines = BLOCKS[found[2]](seen)
        return "".join((found[1], *(f"{line}\n" for line in lines), found[3]))

    return _BLOCK.sub(block, text)


def _outcome(step: Step, seen: Results) -> str:
    one = seen.get(step.name)
    if one is None:
        return NOT_YET
    return f"{one.outcome}{f': {one.why}' if one.why else ''} ({one.machine.gpu}, {one.commit})".replace(
        "|", "\\|"
    )


def _machines(seen: Results) -> str:
    return "; ".join(
        sorted(
            {f"{m.gpu}, driver {m.driver}, torch {m.torch}" for m in (one.machine for one in seen.values())}
        )
    )


def _step_time(one: Result | None, channels: str = "off") -> str:
    took = one.measured.get(channels) if one else None
    return f"{took['median_ms']:.1f} ms ({took['p99_ms']:.1f})" if took else NOT_YET


def _added(one: Result | None, channels: str) -> str:
    """Mean and 95 % interval; a step that failed says so by its gates in docs/gpu-day.md."""
    if one is None:
        return NOT_YET
    added = one.measured.get(channels, {}).get("added_percent_95")
    if not added:
        return "-"
    interval = f"{added['mean']:+.2f} % ({added['low']:+.2f} to {added['high']:+.2f})"
    return f"{interval}; {_step_time(one, channels)}"


def _goal(one: Result | None) -> str:
    """Whether the mean of each set of channels is within what is aimed at."""
    met = one.measured.get("goal_met") if one else None
    return NOT_YET if met is None else "met" if met else "not met"


def main(arguments: Sequence[str] = ()) -> int:
    """0: written or up to date; 1: out of date."""
    seen = results()
    docs = REPOSITORY / "docs"
    files = {docs / name: page((docs / name).read_text(), seen) for name in PAGES}
    return write_or_check(files, check="--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
