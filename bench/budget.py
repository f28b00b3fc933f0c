"""What `argus-exporter budget` says, against a real Prometheus: `python -m bench.budget --ranks 2048`.

Writes every series that the calculator counts for the fleet, with the labels of the catalogue, for a quarter
of an hour at scrapes of 15 s (60 samples: half a chunk, what the head holds on average), then lets
Prometheus evaluate all rules of the mixin for some minutes while samples go on. Ends in one JSON line:

    ranks, series_predicted, series   series in its head, recorded ones included
    memory_predicted_gb, rss_gb       resident memory, 2^30 bytes, the largest seen while rules run
    bytes_per_series                  of the latter
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from argus_core import remote_write
from argus_core.catalogue import CATALOGUE, Family
from argus_exporter.budget.forecast import SMALL_GROUP, SMALL_GROUP_PHASES, forecast
from argus_exporter.budget.series import A_RANK, Fleet
from bench import rules
from bench.rules import SCRAPE, STEP_SECONDS
from bench.series_writer import Request, Series, requests_of, send
from bench.servers import PrometheusServer, process_metric

_NOT_RISING = ("argus_activity", "argus_channel_", "argus_group_expected", "argus_rank_", "argus_kernel_info")


def fleet_series(fleet: Fleet) -> Iterator[Series]:
    """Every series that the calculator counts, of the exporters and of the worker."""
    rng = np.random.default_rng(1)
    names = [f"{number:08x}" for number in rng.integers(0, 1 << 32, max(fleet.pairs, 1))]
    families = [family for family in CATALOGUE if family.name in A_RANK]
    for rank in range(fleet.ranks):
        base = {
            "training_job": "bench",
            "rank": str(rank),
            "instance": f"host{rank // fleet.ranks_per_host}:9877",
        }
        for family in families:
            for number in range(round(A_RANK[family.name](fleet))):
                labels = base | _labels(family, number, fleet, rank, names)
                still = family.name.startswith(_NOT_RISING)
                # A healthy fleet: what rules record of outliers is not part of the forecast.
                usual = 0.1 + 0.05 * number
                slope = 0.0 if still else usual * (1 + 0.002 * float(rng.standard_normal()))
                for name in family.sample_names:
                    counts = name.endswith("_count") or name == "argus_work_units_total"
                    rising = 1.0 if counts and not still else slope
                    yield Series(remote_write.labels_of(name, **labels), 1.0, rising)
        for replica in range(fleet.replicas if fleet.pairs else 0):
            where = {"training_job": "bench", "rank": str(rank), "worker": f"argus-l3-worker-{replica}"}
            for name in ("argus_l3_rank_shift_ratio", "argus_l3_rhythm_divergence"):
                yield Series(remote_write.labels_of(name, **where), float(rng.uniform(0, 0.01)), 0.0)


def _labels(family: Family, number: int, fleet: Fleet, rank: int, names: list[str]) -> dict[str, str]:
    """Labels beside the base, different for each `number` below the family's count."""
    # The names that the rules of the bench have a group each for.
    phase = list(rules.PHASES)[number % fleet.phases % len(rules.PHASES)]
    small = number >= fleet.phases - SMALL_GROUP_PHASES if "phase" in family.labels else number > 0
    group = f"g{number}:{rank // SMALL_GROUP}" if small else f"dp:pp{rank // 4 % 4}.tp{rank % 4}"
    pair = number % max(fleet.pairs, 1)
    values = {
        "phase": phase,
        # No collective: its ranks would differ by chance, and a verdict on each be recorded.
        "kind": "compute",
        "group": group,
        "source": "event",
        "kernel": names[pair],
        "stream": f"compute{pair % 2}",
        "mode": str(number // max(fleet.pairs, 1)),
        "name": "void cutlass::Kernel<" + names[pair] * 12 + ">",
        "generation": str(number),
        "compiler": "dynamo",
        "thread": "MainThread",
        "frame": f"function_{number} (package.module)",
        "void": ("inter_step", "minority")[number % 2],
        "channel": ("phases", "kernels", "stacks")[number % 3],
        "reason": "socket",
        "layer": f"layer{number // 3}",
        "microbatch": str(number % 3),
        "activity": "train",
        "unit": "tokens",
        "node": f"host{rank // fleet.ranks_per_host}",
        "gpu_uuid": f"GPU-{rank:032x}",
    }
    return {label: values[label] for label in (*family.labels, *family.optional_labels) if label in values}


def write(server: PrometheusServer, requests: list[Request], began: float, at: float) -> None:
    """One sample of each."""
    for request in requests:
        send(server, request, (at - began) / STEP_SECONDS, at)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=2048)
    parser.add_argument("--pairs", type=int, default=Fleet(ranks=1).pairs)
    parser.add_argument("--samples", type=int, default=60, help="of each series, before rules are evaluated")
    parser.add_argument("--minutes", type=float, default=3.0, help="how long rules are evaluated")
    options = parser.parse_args()
    fleet = Fleet(ranks=options.ranks, pairs=options.pairs)
    if options.pairs == 0:
        fleet = replace(fleet, replicas=0)
    expected = forecast(fleet)
    requests = requests_of(fleet_series(fleet))
    print(f"{fleet.ranks} ranks, {sum(len(one.values) for one in requests)} series", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        server = PrometheusServer(Path(folder), arguments=("--web.enable-lifecycle",)).start()
        try:
            began = time.time() - options.samples * SCRAPE
            for sample in range(options.samples):
                write(server, requests, began, began + sample * SCRAPE)
            print(f"written in {time.time() - began - options.samples * SCRAPE:.0f} s", flush=True)
            unruled = process_metric(server, "process_resident_memory_bytes")
            file = rules.rules_file(Path(folder))
            intervals = {"scrape_interval": "1h", "evaluation_interval": "15s"}
            server.configure({"global": intervals, "rule_files": [str(file)]})
            rss, end = 0.0, time.time() + 60 * options.minutes
            while time.time() < end:
                following = time.time() + SCRAPE
                write(server, requests, began, time.time())
                rss = max(rss, process_metric(server, "process_resident_memory_bytes"))
                time.sleep(max(0.0, following - time.time()))
            held = int(rules.get(server, "status/tsdb")["headStats"]["numSeries"])
        finally:
            server.stop()
    result = {
        "ranks": fleet.ranks,
        "series_predicted": round(expected.series),
        "series": held,
        "memory_predicted_gb": expected.memory_bytes / 2**30,
        "rss_gb": rss / 2**30,
        "rss_without_rules_gb": unruled / 2**30,
        "bytes_per_series": rss / held,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
