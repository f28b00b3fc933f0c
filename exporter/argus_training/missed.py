"""Tells the exporter of a process that was a rank of a job and that ARGUS was never attached to, as it ends.

Its log is where an operator looks; stderr of the process may be nobody's. The exporter sees such processes
by itself while they run, but only those of its own PID namespace.
"""

from __future__ import annotations

import os
import sys

from argus_core import wire
from argus_core.link import Link, default_socket_path
from argus_training import identity
from argus_training.exit_status import UNKNOWN


def tell() -> None:
    """One greeting, one state, goodbye. Silent where there is no rank or nobody listens."""
    try:
        place = identity.place(os.environ)
    except identity.NoRank:
        return
    job = identity.training_job(os.environ.get("ARGUS_JOB", ""), os.environ, sys.argv)
    link = Link(default_socket_path(), lambda: identity.hello(place, job, identity.Layout()))
    link.add(wire.ChannelState(0, 0, link.name_id(wire.NOT_ATTACHED), wire.Channel.PHASES, 0))
    link.close(exit_status=UNKNOWN)
