"""What tells NCCL that two ranks on one GPU are on two hosts.

It refuses two ranks of one host on one GPU, and knows hosts by NCCL_HOSTID. Between two hosts all goes over
sockets, here those of the loopback device. Two processes without MPS take turns on the GPU, so no time of
theirs is that of a training on two.
"""

from __future__ import annotations

from typing import Final

_BOTH: Final = {
    "NCCL_NET": "Socket",
    "NCCL_IB_DISABLE": "1",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_MNNVL_ENABLE": "0",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_MAX_NCHANNELS": "2",
    "GLOO_SOCKET_IFNAME": "lo",
}


def environment(rank: int) -> dict[str, str]:
    """Variables of one of the two."""
    return _BOTH | {"NCCL_HOSTID": f"gpu-day-{rank}"}
