"""Dumps of torch's flight recorder."""

from __future__ import annotations

import json


def last_collective(recorded: str) -> int:
    """The highest number of a collective in a dump of the flight recorder; -1: there is none."""
    entries = json.loads(recorded).get("entries", [])
    return max((one["collective_seq_id"] for one in entries if not one["is_p2p"]), default=-1)
