"""Answers of NCCL's RAS, as its source writes them (src/ras/client_support.cc, 2.28.9 and 2.30.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
HOST = "127.0.0.1"
IN_PROGRESS = 7


@dataclass(frozen=True)
class Member:
    """A rank that gave its data."""

    rank: int
    pid: int
    all_reduces: int = 0
    host: str = HOST
    init_state: int = 0
    async_error: int = 0
    finalize: bool = False
    destroy: bool = False
    abort: bool = False
    gpu: int | None = None

    def json(self) -> str:
        counts = dict.fromkeys(FUNCTIONS, 0) | {"AllReduce": self.all_reduces}
        gpu = self.rank % 8 if self.gpu is None else self.gpu
        lines = ",\n".join(f'            "{name}": {count}' for name, count in counts.items())
        return (
            f'        {{\n          "rank": {self.rank},\n          "host": "{self.host}",\n'
            f'          "pid": {self.pid},\n          "cuda_dev": {gpu},\n'
            f'          "nvml_dev": {gpu},\n          "status": {{\n'
            f'            "init_state": {self.init_state},\n            "async_error": {self.async_error},\n'
            f'            "finalize_called": {_word(self.finalize)},\n'
            f'            "destroy_flag": {_word(self.destroy)},\n'
            f'            "abort_flag": {_word(self.abort)}\n          }},\n'
            f'          "collective_counts": {{\n{lines}\n          }}\n        }}'
        )


@dataclass(frozen=True)
class Absentee:
    """A rank that did not."""

    rank: int
    pid: int
    unresponsive: bool = False
    dead: bool = False
    host: str = HOST

    def json(self, comma: str) -> str:
        return (
            f'        {{\n          "rank": {self.rank},\n          "host": "{self.host}",\n'
            f'          "pid": {self.pid},\n          "cuda_dev": {self.rank % 8},\n'
            f'          "nvml_dev": {self.rank % 8}{comma}\n          "status": {{\n'
            f'            "unresponsive": {_word(self.unresponsive)},\n'
            f'            "considered_dead": {_word(self.dead)}\n          }}\n        }}'
        )


@dataclass(frozen=True)
class Group:
    """A communicator."""

    members: Sequence[Member]
    absent: Sequence[Absentee] = ()
    hash: int = 0x514E98CF4E44862B
    size: int | None = None

    def json(self, comma: str) -> str:
        size = len(self.members) + len(self.absent) if self.size is None else self.size
        members = ",\n".join(one.json() for one in self.members)
        absent = ",\n".join(one.json(comma) for one in self.absent)
        return (
            f'    {{\n      "hash": "{self.hash:#x}",\n'
            f'      "secondary_hash": "0x2cd6d618b4a75a5a:0xe6854f9ece96c663",\n'
            f'      "size": {size},\n      "ranks_count": {len(self.members)},\n'
            f'      "missing_ranks_count": {len(self.absent)},\n      "ranks": [\n{members}\n      ],\n'
            f'      "missing_ranks": [\n{absent}\n      ]\n    }}'
        )


@dataclass(frozen=True)
class Job:
    """What RAS knows."""

    groups: Sequence[Group] = field(default_factory=tuple)
    version: str = "2.30.7"
    timeouts: int = 0

    def json(self) -> str:
        # 2.28.7 to 2.28.9 leave a comma out, in missing ranks only.
        comma = "" if self.version.startswith("2.28.") else ","
        groups = ",\n".join(one.json(comma) for one in self.groups)
        return (
            f'{{\n  "nccl_version": "{self.version}",\n  "cuda_runtime_version": 13000,\n'
            f'  "cuda_driver_version": 13000,\n  "timestamp": "2026-11-25 21:55:54",\n'
            f'  "communicators_count": {len(self.groups)},\n  "communicators": [\n{groups}\n  ],\n'
            f'  "ras": {{\n    "collection_time_sec": 0.012,\n'
            f'    "timeouts_count": {self.timeouts}\n  }}\n}}\n'
        )


def members(counts: Mapping[int, int], first_pid: int = 4000) -> list[Member]:
    """Running ranks and their AllReduce counts; rank r has the pid `first_pid` + r."""
    return [Member(rank, first_pid + rank, count) for rank, count in counts.items()]


def _word(flag: bool) -> str:
    return "true" if flag else "false"


HEALTHY_TEXT = """\
NCCL version 2.26.2 compiled with CUDA 12.8
CUDA runtime version 12080, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          4            1          4        4

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         4         4         4   RUNNING      OK
    1         2         1         2         2         4   RUNNING      OK

Errors
======

Warnings
========

"""

OUTLIERS_TEXT = """\
NCCL version 2.26.2 compiled with CUDA 12.8
CUDA runtime version 12080, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (2.05s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         8        32        30   RUNNING  INCOMPLETE+MISMATCH
    1         1         1         8         8         8      INIT   ERROR

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 172.16.64.213 managing GPU 5

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487985 on node 172.16.64.213 managing GPUs 6,7 (NVML 2,3)

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 3 ranks
  Rank 21 -- GPU 5 managed by process 3487984 on node 172.16.64.213
  Rank 22 -- GPU 6 (NVML 2) managed by process 3487985 on node 172.16.64.213
  Rank 23 -- [process information not found]

#1-0 (00a1b2c3d4e5f607) ERROR
  Initialization error on 1 rank
  Rank 4 reported Remote process error -- GPU 4 managed by process 3487990 on node 172.16.64.214
  Asynchronous errors on 2 ranks
  2 ranks reported Unhandled CUDA error
  Rank 1 -- GPU 1 managed by process 3487991 on node 172.16.64.214
  Rank 2 -- GPU 2 managed by process 3487992 on node 172.16.64.214

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different status
  27 ranks have status RUNNING
  2 ranks have status ABORT
  Rank 8 -- GPU 0 managed by process 3487979 on node 172.16.64.212
  Rank 9 -- GPU 1 managed by process 3487980 on node 172.16.64.212
  Rank 30 has status NOCOMM -- GPU 6 managed by process 3487999 on node 172.16.64.215
  Communicator ranks have different AllReduce operation counts
  26 ranks have launched up to operation 6650
  2 ranks have launched up to operation 6649
  Rank 8 -- GPU 0 managed by process 3487979 on node 172.16.64.212
  Rank 9 -- GPU 1 managed by process 3487980 on node 172.16.64.212
  Rank 3 has not launched any operations -- GPU 3 managed by process 3487970 on node 172.16.64.211

"""

TEXT_OF_2_24 = """\
NCCL version 2.24.3 compiled with CUDA 12.8
CUDA runtime version 12080, driver version 12080

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        31   RUNNING  INCOMPLETE
    1         1         4       1-2        16         4  FINALIZE  MISMATCH
    2         1         1         4         4         3  FINALIZE  MISMATCH

Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487985 on node node4 managing GPU 6

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 2 ranks
  The missing ranks: 21,22

Warnings
========

#1-0 (9e17999afaa87dbb) MISMATCH
  Communicator ranks have different status
  12 ranks have status UNKNOWN
  The unknown ranks: 1,2,3,5,6,7,9,10,11,13,14,15
  3 ranks have status FINALIZE
  Rank 4 -- GPU 4 managed by process 507289 on node node1

#2-0 (00000000000000ab) MISMATCH
  Communicator ranks have different status
  Rank 2 has status UNKNOWN
  Communicator ranks have different collective operation counts
  3 ranks have launched up to operation 66
  Rank 0 has launched up to operation 65 -- GPU 0 managed by process 483072 on node node1

"""
