"""A process that writes to a ring until it is killed: `python ring_writer.py FOLDER`.

Prints `written N` once N iterations are surely on disk.
"""

from __future__ import annotations

import sys
from pathlib import Path

from argus_exporter.traces.ring import Ring
from exporter.traces.rings import Producer


def main() -> None:
    ring = Ring(Path(sys.argv[1]), budget_bytes=1 << 30, age_s=3600)
    ring.open()
    producer = Producer(ring)
    while True:
        for _ in range(50):
            producer.step()
        ring.flush()
        print("written", producer.steps, flush=True)


if __name__ == "__main__":
    main()
