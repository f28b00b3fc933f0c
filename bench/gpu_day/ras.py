"""What NCCL's RAS says while one of two ranks waits for the other, as `argus-exporter ras` reads it.

NCCL before 2.28.7 is not asked, as that has crashed jobs: then the step is not run. Gloo has no RAS, so a dry
run ends where it would be asked; how an answer is judged has a test (tests/bench/test_gpu_day.py).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bench.gpu_day.hang import behind, hanging
from bench.gpu_day.observe import free_port
from bench.gpu_day.result import NotRun
from bench.gpu_day.step import Day

_COUNTED_S: Final = 20.0
_REFUSED: Final = 2


def run(day: Day) -> dict[str, Any]:
    # A port of their own: RAS of another job of this user may listen at the default one.
    with hanging(day, "away", NCCL_RAS_ADDR=f"localhost:{free_port()}") as (collector, ranks):
        (day.work / "call").touch()
        collector.wait(lambda: behind(collector) == 1, _COUNTED_S)
        asked = [
            sys.executable,
            "-m",
            "argus_exporter.cli",
            "ras",
            "--pid",
            str(ranks[0].pid),
            "--again",
            "--json",
        ]
        answer = subprocess.run(asked, capture_output=True, text=True, check=False)
        why = answer.stderr.strip()
        print(answer.stdout, why, sep="\n", flush=True)
        day.reach(f"`argus-exporter ras` ended with status {answer.returncode}")
        if answer.returncode == _REFUSED or (day.dry and answer.returncode != 0):
            raise NotRun(f"RAS was not asked, or there is none: {why[-200:]}")
        measured = {"ras_status": answer.returncode, "ended": sum(one.poll() is not None for one in ranks)}
        if answer.returncode == 0:
            (day.fixtures / "ras.json").write_text(answer.stdout)
            measured |= judged(json.loads(answer.stdout), [one.pid for one in ranks])
        return measured


def judged(told: Mapping[str, Any], pids: Sequence[int]) -> dict[str, Any]:
    """What an answer says of these two processes, of which the second stays away.

    Args:
        told: as `argus-exporter ras --again --json` prints it.
    """
    place = [
        {one["place"]["pid"]: one["rank"] for one in group["present"]} for group in told["communicators"]
    ]
    with_both = [number for number, ranks in enumerate(place) if set(pids) <= set(ranks)]
    if len(with_both) != 1:
        return {"nccl": told["nccl_version"], "communicators_with_both": len(with_both)}
    group, ranks = told["communicators"][with_both[0]], place[with_both[0]]
    levels = {level["count"]: level["ranks"] for level in group["launches"].get("AllReduce", ())}
    counted = {rank: count for count, members in levels.items() for rank in members}
    first, second = (counted.get(ranks[pid]) for pid in pids)
    return {
        "nccl": told["nccl_version"],
        "communicators_with_both": 1,
        "lacks": first - second if first is not None and second is not None else None,
        "stuck": int(group["hash"] in told["stuck"]),
        "waited_for_second": int([one["pid"] for one in told["waited_for"]] == [pids[1]]),
    }
