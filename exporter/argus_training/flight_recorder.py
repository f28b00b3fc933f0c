"""What torch's flight recorder knows of the last collective of each process group.

The recorder is a ring of torch's own, on by default (TORCH_FR_BUFFER_SIZE; torch before 2.11 with NCCL wants
TORCH_NCCL_TRACE_BUFFER_SIZE). A dump of its status costs 5 to 100 us. One of its entries takes 30 ms where
2,000 are listed, as with gloo, which never says that one is complete; with NCCL only those under way are. The
function for it holds the GIL, with NCCL also while a wedged driver does not say whether an event has passed.
gloo's is asked of torch's control plane where that can be, which gives the GIL back. A dump of all entries,
also those that have ended, takes some 100 ms of either: made once a hang is certain, for a person to read.

A status has a number of the process's own for a group, and an entry its name too: so entries are read once to
know which is which, and what the last collective is.

With gloo a status counts transfers between two ranks too, which have no entries, and nothing starts.
"""

from __future__ import annotations

import functools
import gzip
import json
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

Dump = Callable[[], Any]
"""Gives JSON."""

_LIST: Final = re.compile(r'"entries"\s*:\s*\[\s*')
"""Where entries begin: within a text of JSON's, a quote has a backslash."""
_NEXT: Final = re.compile(r"[\s,]*")
_DECODER: Final = json.JSONDecoder()
_NONE: Final = -1
_FAST: Final = 1
"""Level of compression: a megabyte of entries becomes a thirtieth in a few milliseconds."""
_OK: Final = 200
_Parsed = TypeVar("_Parsed")


class Status(NamedTuple):
    """Of one process group: numbers of its last collectives. -1: none; where nothing starts, not known."""

    enqueued: int
    started: int
    completed: int


class Numbers(NamedTuple):
    """Of the collectives of one process group that the recorder lists."""

    last: int
    open: tuple[int, ...]
    """Those that had not ended when they were listed."""


class Operation(NamedTuple):
    name: str
    """Without the backend: `all_reduce`."""
    created_ns: int
    """Unix time at which it was enqueued."""


class Listed(NamedTuple):
    """What the recorder lists of one process group."""

    group: str
    """torch's name of it."""
    numbers: Numbers
    calls: Numbers
    """The same where transfers count too, as gloo's do."""
    names: tuple[str, ...]
    created_ns: tuple[int, ...]
    """Of those that had not ended, in their order, and of the last one: as `Operation` has them."""

    def operation(self, at: int) -> Operation:
        return Operation(self.names[at], self.created_ns[at])

    def numbered_as(self, status: Status) -> Numbers | None:
        """In the way of a status; None where its last one is another call."""
        return next((one for one in (self.numbers, self.calls) if one.last == status.enqueued), None)


class LastCollective(NamedTuple):
    """What the rank has entered in one process group, or in several of one name."""

    operation: str
    """Of the first collective that has not ended, which the others wait in; of the last where all have."""
    not_started: int | None
    """So many have been entered and not started; None: not known."""
    not_completed: int | None


class Recorder(NamedTuple):
    """One of torch's, and how it is read."""

    backend: str
    """Whose collectives it has."""
    status: Dump
    entries: Dump
    """Those under way; with gloo all."""
    everything: Dump


class FlightRecorder:
    """The recorders of one process, one a backend. Not for the thread that trains.

    Args:
        bindings: `torch._C._distributed_c10d`.
        failed: told of a recorder that cannot be read; it is left out from then on.
    """

    def __init__(self, bindings: Any, failed: Callable[[Exception], None]) -> None:
        self._bindings = bindings
        self._failed = failed
        self._listed: Mapping[tuple[str, int], Listed] = {}

    @functools.cached_property
    def _recorders(self) -> dict[str, Recorder]:
        """By name; those that torch has at first use."""
        plain = getattr(self._bindings, "_dump_fr_trace_json", None)
        nccl = getattr(self._bindings, "_dump_nccl_trace_json", None)
        found = {}
        if plain is not None:
            found["gloo"] = _recorder("gloo", plain, _handled(self._bindings, "fr_trace_json"))
            if "backend:" in (plain.__doc__ or ""):  # since torch 2.15
                found["nccl2"] = _recorder("nccl", functools.partial(plain, backend="nccl2"))
        if nccl is not None:
            found["nccl"] = _recorder("nccl", nccl)
        return found

    def status(self, backends: Collection[str]) -> dict[tuple[str, int], Status]:
        """How far each process group is, by recorder and number. Quick.

        Args:
            backends: of the process's groups, as torch names them (`gloo`, `cpu:gloo,cuda:nccl`).
        """
        return self._read(backends, lambda recorder: recorder.status, _statuses)

    def list_entries(self, backends: Collection[str]) -> None:
        """Learn what the last collective of each group is. Takes long."""
        self._listed = self._read(backends, lambda recorder: recorder.entries, _listed)

    def last(
        self, statuses: Mapping[tuple[str, int], Status], names: Mapping[str, str]
    ) -> dict[str, LastCollective]:
        """The last collective by name of ours, of groups whose entries are known.

        Args:
            statuses: from `status`.
            names: ours by torch's; several of torch's groups may have one, and count together.
        """
        of: dict[str, list[tuple[Status, Listed]]] = {}
        for key, status in statuses.items():
            listed = self._listed.get(key)
            if listed is not None and listed.group in names:
                of.setdefault(names[listed.group], []).append((status, listed))
        return {name: last for name, groups in of.items() if (last := _last(groups)) is not None}

    def dump(self, backends: Collection[str]) -> dict[str, bytes]:
        """All that is recorded, by recorder: torch's JSON, as a gzip file. Takes long.

        Recorders without an entry, such as those that are switched off, are left out.
        """
        found = self._read(backends, lambda recorder: recorder.everything, _compressed)
        return {name: packed for (name, _), packed in found.items()}

    def _read(
        self,
        backends: Collection[str],
        how: Callable[[Recorder], Dump],
        parse: Callable[[str], dict[int, _Parsed]],
    ) -> dict[tuple[str, int], _Parsed]:
        found = {}
        for name, recorder in list(self._recorders.items()):
            if not any(recorder.backend in one for one in backends):
                continue
            try:
                text = how(recorder)()
                for group, parsed in parse(text if isinstance(text, str) else text.decode()).items():
                    found[name, group] = parsed
            except Exception as error:
                del self._recorders[name]
                self._failed(error)
        return found


def _recorder(backend: str, dump: Callable[..., Any], handled: Dump | None = None) -> Recorder:
    """`handled`: another way to its entries, which is tried first."""

    def entries(only_active: bool) -> Any:
        by_function = functools.partial(dump, includeCollectives=True, onlyActive=only_active)
        try:  # it may leave out what has ended: with gloo nothing ever has
            return handled() if handled is not None else by_function()
        except Exception:  # a handler may want parameters, which no request of Python's can have
            return by_function()

    status = functools.partial(dump, includeCollectives=False)
    return Recorder(backend, status, lambda: entries(True), lambda: entries(False))


def _handled(bindings: Any, name: str) -> Dump | None:
    """A dump by a handler of torch's control plane; None where there is no such handler."""
    try:
        handler = bindings._get_handler(name)

        class Request(bindings._Request):  # type: ignore[misc]  # torch's, which is not imported here
            def body(self) -> bytes:
                return b""

        class Response(bindings._Response):  # type: ignore[misc]
            content = ""
            status = 0

            def set_content(self, content: str, _type: str) -> None:
                self.content = content

            def set_status(self, status: int) -> None:
                self.status = status

    except Exception:  # each torch raises another, or lacks all of this
        return None

    def dump() -> str:
        response = Response()
        handler(Request(), response)
        if response.status != _OK:
            raise RuntimeError(f"{name} says {response.status}")
        return response.content

    return dump


def _statuses(text: str) -> dict[int, Status]:
    return {
        int(group): Status(
            *(
                int(status.get(f"last_{what}_collective", _NONE))
                for what in ("enqueued", "started", "completed")
            )
        )
        for group, status in json.loads(text).get("pg_status", {}).items()
    }


def _compressed(text: str) -> dict[int, bytes]:
    """Of no group: all of it. The GIL is given back meanwhile."""
    if next(_entries(text), None) is None:
        return {}
    return {_NONE: gzip.compress(text.encode(), _FAST)}


def _listed(text: str) -> dict[int, Listed]:
    groups: dict[int, _Group] = {}
    for entry in _entries(text):
        groups.setdefault(int(entry["pg_id"]), _Group()).add(entry)
    return {number: group.listed() for number, group in groups.items() if not group.transfers}


class _Group:
    """Keeps numbers of entries and no object of them: thousands would have the garbage collected."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._calls: list[int] = []
        self._names: list[str] = []
        self._created: list[int] = []
        self._last: Mapping[str, Any] = {}
        self.transfers = False
        """Has one: NCCL numbers them apart, and its status has the number of either."""

    def add(self, entry: Mapping[str, Any]) -> None:
        """The next one; torch lists the oldest first."""
        # gloo's threads write what they have completed into the status in any order: it may be one too few.
        if not entry["retired"]:
            self._numbers.append(int(entry["collective_seq_id"]))
            self._calls.append(int(entry["op_id"]))
            self._keep_operation(entry)
        self._last = entry
        self.transfers |= bool(entry["is_p2p"])

    def _keep_operation(self, entry: Mapping[str, Any]) -> None:
        self._names.append(sys.intern(str(entry["profiling_name"]).partition(":")[2]))
        self._created.append(int(entry["time_created_ns"]))

    def listed(self) -> Listed:
        """Once all have been added."""
        last = self._last
        self._keep_operation(last)
        return Listed(
            group=str(last["process_group"][0]),
            numbers=Numbers(int(last["collective_seq_id"]), tuple(self._numbers)),
            calls=Numbers(int(last["op_id"]), tuple(self._calls)),
            names=tuple(self._names),
            created_ns=tuple(self._created),
        )


def _entries(text: str) -> Iterator[Mapping[str, Any]]:
    """One by one: to decode a megabyte at once would hold the GIL for 25 to 100 ms."""
    found = _LIST.search(text)
    at = found.end() if found is not None else len(text)
    while text.startswith("{", at):
        entry, at = _DECODER.raw_decode(text, at)
        yield entry
        at = _NEXT.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing too


def _last(groups: Sequence[tuple[Status, Listed]]) -> LastCollective | None:
    """None where one of them has gone on since its entries were listed, or its last call is a transfer."""
    open_: list[tuple[Status, tuple[int, ...]]] = []
    first: list[Operation] = []
    for status, listed in groups:
        numbers = listed.numbered_as(status)
        if numbers is None:
            return None
        open_.append((status, numbers.open))
        ended = sum(1 for one in numbers.open if one <= status.completed)
        if ended < len(numbers.open):
            first.append(listed.operation(ended))
    if first:
        operation = min(first, key=lambda one: one.created_ns)
    else:
        operation = max((listed.operation(-1) for _, listed in groups), key=lambda one: one.created_ns)
    knows_starts = all(status.started != _NONE for status, _ in groups)

    def after(what: Callable[[Status], int]) -> int:
        return sum(sum(1 for one in numbers if one > what(status)) for status, numbers in open_)

    return LastCollective(
        operation=operation.name,
        not_started=after(lambda status: status.started) if knows_starts else None,
        not_completed=after(lambda status: status.completed),
    )
