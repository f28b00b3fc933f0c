"""How many things of ARGUS can be turned, by whom: `python -m tools.knobs` lists them.

Keys of the exporter's and of the worker's file, and variables of the training process. The trace store, which
both files have, counts once; how to reach a server counts beside, as its keys are Prometheus' own.
"""

from __future__ import annotations

from argus_core.http_access import AccessConfig
from argus_core.settings import document
from argus_core.store.config import StoreConfig
from argus_exporter.config import ExporterConfig
from argus_l3_worker.config import Config
from argus_training.settings import TABLE

SET_BY_ARGUS = ("ARGUS_PRODUCER_PID", "ARGUS_NCCL_PAGE")
"""Variables that are a message between our own processes: nobody sets them."""


PROMETHEUS_OWN = "HTTP clients, as in Prometheus"


def knobs() -> dict[str, list[str]]:
    """Names by where they are set."""
    access = [key for key, *_ in document(AccessConfig)]
    store = [f"store.{key}" for key, *_ in document(StoreConfig)]
    shared = tuple(f".{key}" for key in access + store)

    def own(config: type[object]) -> list[str]:
        return [key for key, *_ in document(config) if not key.endswith(shared)]

    return {
        "exporter": own(ExporterConfig),
        "worker": own(Config),
        "trace store": store,
        "training process": [variable.name for variable in TABLE if variable.name not in SET_BY_ARGUS],
        PROMETHEUS_OWN: access,
    }


def ours() -> int:
    """How many there are without Prometheus' own."""
    return sum(len(names) for where, names in knobs().items() if where != PROMETHEUS_OWN)


def main() -> None:
    found = knobs()
    for where, names in found.items():
        print(f"{where}: {len(names)}")
        for name in names:
            print(f"  {name}")
    print(f"{ours()} of ours, and {len(found[PROMETHEUS_OWN])} as in Prometheus")


if __name__ == "__main__":
    main()
