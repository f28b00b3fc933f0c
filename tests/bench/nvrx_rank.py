"""One rank of a job on gloo that asks nvidia-resiliency-ext for reports: `nvrx_rank.py RANK RANKS FOLDER`.

FOLDER has `summaries.json`: by report, rank and kernel the median, mean and number of launches. Rank 0 writes
`stragglers.json`: by report the ranks that its default thresholds call stragglers.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch.distributed as dist
from nvidia_resiliency_ext.straggler.reporting import ReportGenerator
from nvidia_resiliency_ext.straggler.statistics import Statistic


def main(rank: int, ranks: int, folder: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    generator = ReportGenerator(["relative_perf_scores", "individual_perf_scores"], gather_on_rank0=True)
    named = []
    for report in json.loads((folder / "summaries.json").read_text()):
        kernels = {
            kernel: {Statistic.MED: median, Statistic.AVG: mean, Statistic.NUM: number}
            for kernel, (median, mean, number) in report[rank].items()
        }
        made = generator.generate_report({}, kernels)
        if made is not None:
            found = made.identify_stragglers()
            kinds = ("straggler_gpus_relative", "straggler_gpus_individual")
            named.append(sorted({one.rank for kind in kinds for one in found[kind]}))
    if rank == 0:
        (folder / "stragglers.json").write_text(json.dumps(named))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
