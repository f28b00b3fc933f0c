"""Writes the memory of libargus_nccl by its layout, as the library would."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from argus_core import nccl_page


def write_header(descriptor: int, **values: int) -> None:
    fields = dict.fromkeys(nccl_page.HEADER_FIELDS, 0)
    fields |= {"magic": nccl_page.MAGIC, "version": nccl_page.VERSION} | values
    os.pwrite(descriptor, nccl_page.HEADER.pack(*fields.values()), 0)


def write_communicator(descriptor: int, slot: int, **values: Any) -> None:
    fields: dict[str, Any] = dict.fromkeys(nccl_page.COMMUNICATOR_FIELDS, 0)
    fields |= {"name": b"", "state": nccl_page.LIVE} | values
    os.pwrite(descriptor, nccl_page.COMMUNICATOR.pack(*fields.values()), nccl_page.place_of(slot))


def write_operation(
    descriptor: int, slot: int, function: str, count: int, sequence: int, called: int = 0
) -> None:
    at = nccl_page.place_of(slot) + nccl_page.COMMUNICATOR.size
    at += nccl_page.FUNCTIONS.index(function) * nccl_page.OPERATION.size
    finished = max(sequence - 1, 0)
    words = (called, count, 4 * count, sequence, 1, finished, 1, 5_000_000, count, count, 0, 0, 0, 0)
    os.pwrite(descriptor, nccl_page.OPERATION.pack(*words), at)


def write_kernels(
    descriptor: int,
    slot: int,
    function: str,
    count: int,
    ns: int,
    *,
    finished: int = 0,
    size: str = "64KiB",
    bus_bytes: int = 0,
) -> None:
    """Of one function, and all of one class of size."""
    functions, sizes = len(nccl_page.FUNCTIONS), len(nccl_page.SIZE_NAMES)
    at, class_ = nccl_page.FUNCTIONS.index(function), nccl_page.SIZE_NAMES.index(size)
    words = [0] * (3 * functions + 2 * sizes)
    words[at], words[functions + at], words[2 * functions + at] = count, ns, finished
    words[3 * functions + class_] = ns if bus_bytes else 0
    words[3 * functions + sizes + class_] = bus_bytes
    packed = nccl_page.KERNELS.pack(*words)
    os.pwrite(descriptor, packed, nccl_page.place_of(slot) + nccl_page.KERNELS_AT)


class Oldest(NamedTuple):
    """Of a peer's channels, as `nccl_page.Peer` has it."""

    counts: tuple[int, ...] = (0,) * 6
    functions: tuple[str, str] = ("AllReduce", "AllReduce")
    entered_ns: tuple[int, int] = (0, 0)
    moved_ns: tuple[int, int] = (0, 0)


def write_peer(
    descriptor: int,
    slot: int,
    at: int,
    key: int,
    ns: tuple[int, ...],
    open_: int,
    oldest: Oldest = Oldest(),  # noqa: B008
) -> None:
    place = nccl_page.place_of(slot) + nccl_page.PEERS_AT + at * nccl_page.PEER.size
    functions = (nccl_page.FUNCTIONS.index(one) for one in oldest.functions)
    packed = nccl_page.PEER.pack(
        *(key, 1, sum(ns), 0, *ns),
        *(bool(one) for one in ns),
        *(open_,) * 6,
        *oldest.counts,
        *functions,
        *oldest.entered_ns,
        *oldest.moved_ns,
    )
    os.pwrite(descriptor, packed, place)
