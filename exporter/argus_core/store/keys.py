"""Keys of traces: `training_job/date/rank/window.perfetto-trace`, and of dumps of torch's flight recorder
beside them: `window.flight-RECORDER.json.gz`, of the step that hung, and when the dump was made.

`date` is the UTC day on which the window began; `window` is `FIRST-LAST-TIME`: first and last step, twelve
digits each (`nosteps` where the records have no steps), and the UTC time of the window's begin in
milliseconds, so that keys sort by step and time and a repeated step stays apart. Every character of a key
stands in a URL path as it is: others are written `~` and two hex digits for each byte of their UTF-8.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from argus_core.errors import UserError

SUFFIX = ".perfetto-trace"
_DUMP = re.compile(r"(?P<window>.+)\.flight-(?P<recorder>[a-z0-9]+)\.json\.gz")
_KEY_LIMIT = 512
_PART = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*")
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_NO_STEPS = "nosteps"
_STEP_DIGITS = 12
_WINDOW = re.compile(
    rf"(?:(?P<first>\d{{{_STEP_DIGITS},20}})-(?P<last>\d{{{_STEP_DIGITS},20}})|{_NO_STEPS})"
    r"-(?P<begin>\d{8}T\d{6}\.\d{3}Z)"
)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME = "%Y%m%dT%H%M%S"


class WrongKey(UserError, ValueError):
    """A text that no key is, or begins with."""


@dataclass(frozen=True)
class TraceKey:
    """What a key says. First and last step are None together; `begin_ns` is Unix time, in a key cut to ms."""

    training_job: str
    rank: int
    first_step: int | None
    last_step: int | None
    begin_ns: int

    def __str__(self) -> str:
        begin = datetime.fromtimestamp(self.begin_ns // 1_000_000_000, UTC)
        milliseconds = self.begin_ns // 1_000_000 % 1000
        steps = (
            _NO_STEPS
            if self.first_step is None or self.last_step is None
            else f"{self.first_step:0{_STEP_DIGITS}d}-{self.last_step:0{_STEP_DIGITS}d}"
        )
        window = f"{steps}-{begin.strftime(_TIME)}.{milliseconds:03d}Z"
        return f"{job_prefix(self.training_job)}{begin:%Y-%m-%d}/{self.rank}/{window}{SUFFIX}"

    @classmethod
    def parse(cls, key: str) -> TraceKey:
        """Inverse of `str`.

        Raises:
            ValueError: not the key of a trace.
        """
        parts = key.split("/")
        window = _WINDOW.fullmatch(parts[-1].removesuffix(SUFFIX))
        whole = len(parts) == 4 and key.endswith(SUFFIX) and window and _DATE.fullmatch(parts[1])
        if not whole or window is None or not (parts[2].isascii() and parts[2].isdecimal()):
            raise ValueError(
                f"{key!r} is not the key of a trace; allowed: "
                f"training_job/YYYY-MM-DD/rank/FIRST-LAST-TIME{SUFFIX}"
            )
        seconds, milliseconds = window["begin"].removesuffix("Z").split(".")
        begin = datetime.strptime(seconds, _TIME).replace(tzinfo=UTC)
        return cls(
            training_job=decode_part(parts[0]),
            rank=int(parts[2]),
            first_step=int(window["first"]) if window["first"] else None,
            last_step=int(window["last"]) if window["last"] else None,
            begin_ns=int(begin.timestamp()) * 1_000_000_000 + int(milliseconds) * 1_000_000,
        )


@dataclass(frozen=True)
class DumpKey:
    """What the key of a dump says. `recorder`: torch's, such as `nccl`."""

    training_job: str
    rank: int
    step: int
    made_ns: int
    recorder: str

    def __str__(self) -> str:
        beside = str(TraceKey(self.training_job, self.rank, self.step, self.step, self.made_ns))
        return f"{beside.removesuffix(SUFFIX)}.flight-{self.recorder}.json.gz"

    @classmethod
    def parse(cls, key: str) -> DumpKey:
        """Inverse of `str`.

        Raises:
            ValueError: not the key of a dump.
        """
        dump = _DUMP.fullmatch(key)
        if dump is None:
            raise ValueError(f"{key!r} is not the key of a dump of torch's flight recorder")
        beside = TraceKey.parse(f"{dump['window']}{SUFFIX}")
        step = beside.first_step or 0
        return cls(beside.training_job, beside.rank, step, beside.begin_ns, dump["recorder"])


def is_dump(key: str) -> bool:
    """Whether a key is that of a dump, and not of a trace."""
    return _DUMP.fullmatch(key) is not None


def of_one_step(keys: Iterable[TraceKey], step: int | None = None) -> list[TraceKey]:
    """Of each rank its newest window that has a step: the newest step that most ranks have, or the given one.

    Ranks whose windows do not have it are left out. Where no window says steps, each rank's newest is taken.
    """
    found = sorted(keys, key=lambda one: one.begin_ns)
    if step is None:
        step = _newest_of_most(found)
    if step is not None:
        found = [one for one in found if _has(one, step)]
    newest = {(one.training_job, one.rank): one for one in found}
    return [newest[rank] for rank in sorted(newest)]


def _has(key: TraceKey, step: int) -> bool:
    first, last = key.first_step, key.last_step
    return first is not None and last is not None and first <= step <= last


def _newest_of_most(keys: Iterable[TraceKey]) -> int | None:
    """Windows are walked through by step; what most ranks have ends where one of their windows does."""
    begins: defaultdict[int, list[TraceKey]] = defaultdict(list)
    ends: defaultdict[int, list[TraceKey]] = defaultdict(list)
    for key in keys:
        if key.first_step is not None and key.last_step is not None:
            begins[key.first_step].append(key)
            ends[key.last_step].append(key)
    here: Counter[tuple[str, int]] = Counter()
    most = (0, 0)
    for step in sorted(begins.keys() | ends.keys()):
        here.update((key.training_job, key.rank) for key in begins[step])
        if ends[step]:
            most = max(most, (len(here), step))
        for key in ends[step]:
            here[key.training_job, key.rank] -= 1
        here = +here
    return most[1] if ends else None


def job_prefix(training_job: str) -> str:
    """What the keys of all traces of a job begin with."""
    return f"{encode_part(training_job)}/"


def encode_part(text: str) -> str:
    """A text as one part of a key: one that is not empty and does not begin with a dot."""
    raw = text.encode("utf-8", "replace")
    part = "".join(chr(byte) if byte in _PLAIN else f"~{byte:02x}" for byte in raw) or "~"
    return f"~2e{part[1:]}" if part.startswith(".") else part


def decode_part(part: str) -> str:
    """Inverse of `encode_part`."""
    raw = bytearray()
    at = 0
    while at < len(part):
        if part[at] == "~":
            raw += bytes.fromhex(part[at + 1 : at + 3])
            at += 3
        else:
            raw += part[at].encode()
            at += 1
    return raw.decode("utf-8", "replace")


def check_key(key: str) -> None:
    """Refuse what is not a key of any store.

    Raises:
        WrongKey: not parts of URL-safe characters with `/` between them.
    """
    parts = key.split("/")
    if len(key) > _KEY_LIMIT or not all(map(_PART.fullmatch, parts)):
        raise WrongKey(
            f"key {key[:80]!r} is not allowed: parts of A-Z a-z 0-9 . _ ~ - that begin with no dot, "
            f"/ between them, {_KEY_LIMIT} characters in all"
        )
