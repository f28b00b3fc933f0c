"""Tells the exporter of a process that was a rank of a job and that ARGUS was never attached to, as it ends.

Its log is where an operator looks; stderr of the process may be nobody's. The exporter sees such processes
by itself while they run, but only those of its own PID namespace.
"""

from __future__ import annotations

import dataclasses
import os
import sys

from argus_core.link import Link, default_socket_path
from argus_training import identity


def tell() -> None:
    """One greeting, of no channel: no rank comes of it. Silent where there is no rank or nobody listens."""
    try:
        place = identity.place(os.environ)
    except identity.NoRank:
        return
    job = identity.training_job(os.environ.get("ARGUS_JOB", ""), os.environ, sys.argv)
    hello = dataclasses.replace(identity.hello(place, job, identity.Layout()), channels=0)
    Link(default_socket_path(), lambda: hello).close()
