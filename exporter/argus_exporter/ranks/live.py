"""What a rank is in the middle of, from the page that its producer shares (`argus_core.shared_page`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from argus_core import wire
from argus_core.log import Log
from argus_core.nccl_page import NcclPage, NcclPageError, NcclPageReader
from argus_core.shared_page import CollectiveSequence, Dump, OpenSpan, Page, PageError, PageReader
from argus_exporter.place.topology import RoutingTable

log = Log(__name__)

_BOTH: Final = wire.SHARES_PAGE | wire.SHARES_NCCL


@dataclass(frozen=True)
class Clock:
    """Ties the producer's CLOCK_MONOTONIC to Unix time: two readings of one moment, from its HELLO."""

    monotonic_ns: int
    realtime_ns: int

    def unix_seconds(self, monotonic_ns: int) -> float:
        return (self.realtime_ns + monotonic_ns - self.monotonic_ns) / 1e9


@dataclass(frozen=True)
class Live:
    """One reading. Keys are unique: where slots of a page share a name, the longest wait counts."""

    open_since: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(phase, kind) to the Unix time at which the open span began."""
    collectives: Mapping[str, CollectiveSequence] = field(default_factory=dict)
    """Group to the collective entered last; none while a job goes on: it changes at each scrape."""
    gpu: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """The (phase, kind) that the GPU is in, to when the host began it; only while an iteration is overdue."""


class LivePage:
    """The shared page of one rank, and the memory of NCCL's plugin where there is one. Owns the readers."""

    def __init__(self, reader: PageReader, clock: Clock, nccl: NcclPageReader | None = None) -> None:
        self._reader = reader
        self._clock = clock
        self._nccl = nccl
        self.memory = reader.inode
        """Of the page: another process shares another one."""
        self._dumped = 0
        """Number of the last dump."""

    def read(self, routing: RoutingTable, published: Callable[[str], str], *, goes_on: bool) -> Live:
        """What is going on now; a name, which the peer may change at will, is as it is `published`.

        Args:
            goes_on: the running iteration is not overdue.

        Raises:
            PageError: the producer wrote what is no page.
        """
        page = self._reader.read()
        gpu = (page.gpu,) if page.gpu is not None else ()
        return Live(
            self._since(page.open_spans, published),
            {} if goes_on else _collectives(page, routing, published),
            self._since(gpu, published),
        )

    def read_nccl(self) -> NcclPage | None:
        """What NCCL's plugin has counted; None where there is none.

        Raises:
            NcclPageError: the memory was not written by our library.
        """
        return self._nccl.read() if self._nccl is not None else None

    def new_dump(self) -> Dump | None:
        """What torch's flight recorders said in a hang; each dump is given once."""
        dump = self._reader.dump(self._dumped)
        if dump is not None:
            self._dumped = dump.number
        return dump

    def unix_seconds(self, monotonic_ns: int) -> float:
        return self._clock.unix_seconds(monotonic_ns)

    def give_up_nccl(self) -> None:
        if self._nccl is not None:
            self._nccl.close()
            self._nccl = None

    def _since(
        self, spans: Iterable[OpenSpan], published: Callable[[str], str]
    ) -> dict[tuple[str, str], float]:
        open_since: dict[tuple[str, str], float] = {}
        for span in spans:
            key = published(span.phase) or "unnamed", span.kind.name.lower()
            began = self._clock.unix_seconds(span.start_monotonic_ns)
            open_since[key] = min(began, open_since.get(key, began))
        return open_since

    def close(self) -> None:
        self._reader.close()
        self.give_up_nccl()


def _collectives(
    page: Page, routing: RoutingTable, published: Callable[[str], str]
) -> dict[str, CollectiveSequence]:
    """By process group: one that the producer names by its dimension has the name of its members' place."""
    found: dict[str, CollectiveSequence] = {}
    for collective in page.collectives:
        group = routing.process_group("", published(collective.group) or "world").name
        if group not in found or found[group].number < collective.number:
            found[group] = collective
    return found


def adopt_page(hello: wire.Hello, descriptors: list[int]) -> LivePage | None:
    """Take over what came with HELLO. Empties `descriptors` of what it took.

    Raises:
        WireError: more descriptors than HELLO announces, or one that is not what it announces.
    """
    announced = (hello.shares_page & wire.SHARES_PAGE) + (hello.shares_page == _BOTH)
    if len(descriptors) > announced:
        raise wire.WireError(
            "page", f"HELLO brought {len(descriptors)} descriptors and announces {hello.shares_page}"
        )
    if len(descriptors) < announced or not announced:
        # Announced and not here: we are at our limit of open files. The rank's records matter more.
        if hello.shares_page:
            log.warning("shared page did not arrive, see the exporter's limit of open files", rank=hello.rank)
        return None
    nccl = None
    if announced > 1:
        try:
            nccl = NcclPageReader(descriptors.pop())
        except NcclPageError as error:
            log.warning("memory of NCCL's plugin refused", rank=hello.rank, error=error)
    try:
        reader = PageReader(descriptors.pop())
    except PageError as error:
        if nccl is not None:
            nccl.close()
        raise wire.WireError("page", str(error)) from error
    return LivePage(reader, Clock(hello.monotonic_ns, hello.realtime_ns), nccl)
