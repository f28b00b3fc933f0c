"""Samples this process's own stacks, for where py-spy may not look from outside.

A daemon thread reads `sys._current_frames()` about twice a second. It needs no permission, and it is second
best: it needs the GIL, so it sees nothing of a stall that holds it, and it costs the training process.
It runs when told to (`ARGUS_STACKS=inprocess`), or (`auto`) while the exporter's mark says that py-spy was
refused this rank; until then the thread looks for a file every few seconds, and nothing else.

The samples go over a connection of their own: the recorder's belongs to the training thread.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

from argus_core import wire
from argus_core.link import Link
from argus_core.stack_refusals import BY_CHOICE, refusal_path
from argus_training.ptracer import Ptracer

_SHORTEST_INTERVAL_S: Final = 0.5
_LONGEST_INTERVAL_S: Final = 30.0
_BUDGET: Final = 0.002
"""Share of a core that sampling may take: a fifth of what all of ARGUS may."""
_LOOK_S: Final = 5.0
"""How often the mark and the socket are looked at, and how long samples wait to be sent."""
_DEPTH_LIMIT: Final = 96
_THREADS_LIMIT: Final = 64
_NODES_LIMIT: Final = 16_384
_NAMES_LIMIT: Final = 4_096
"""Distinct functions: the exporter takes 16,384 names a rank, of all its connections."""
_FAILURES_LIMIT: Final = 3


OWN_THREADS: Final = "argus-"
"""How the names of all threads of the producer begin."""


class StackTree:
    """Call stacks as a tree: each node a function below its caller. Grows to a limit, and no further."""

    def __init__(self) -> None:
        self.nodes: list[tuple[int, CodeType]] = []
        """(parent, code) of node 1, 2, ...; holding the code keeps its id from being used again."""
        self._ids: dict[tuple[int, int], int] = {}

    def node(self, frame: FrameType) -> int:
        """The node of a stack by its innermost frame; 0 when the tree is full."""
        codes: list[CodeType] = []
        at: FrameType | None = frame
        while at is not None and len(codes) < _DEPTH_LIMIT:
            codes.append(at.f_code)
            at = at.f_back
        node = 0
        for code in reversed(codes):
            key = node, id(code)  # code objects hash by content: slow
            known = self._ids.get(key)
            if known is None:
                if len(self.nodes) >= _NODES_LIMIT:
                    return 0
                self.nodes.append((node, code))
                known = self._ids[key] = len(self.nodes)
            node = known
        return node


class StackSampler:
    """The thread and its connection. Everything but `start`, `close` and `forked` runs in the thread.

    Args:
        socket: the exporter's socket.
        hello: as for the recorder's link; only the channels differ.
        mode: `auto`, `inprocess` or `off`.
        ptracer: who may read this process from outside.
    """

    def __init__(
        self,
        socket: Path,
        hello: Callable[[], wire.Hello],
        *,
        mode: str,
        ptracer: Ptracer,
    ) -> None:
        self._socket = socket
        self._hello = hello
        self._mode = mode
        self._ptracer = ptracer
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._link: Link | None = None
        self._connects = 0
        self._sent_nodes = 0
        self._tree = StackTree()
        self._labels: dict[int, str] = {}
        self._pending: Counter[tuple[str, int]] = Counter()
        self._seen: dict[int, tuple[int, int]] = {}
        self._looked_at = 0.0
        self._wanted = False
        self._mark: Path | None = None
        self.dropped = 0
        self.cpu_ns = 0
        """CPU time of the samples and of sending them."""
        self.interval_s = _SHORTEST_INTERVAL_S

    @property
    def sampling(self) -> bool:
        return self._link is not None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="argus-stacks", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """At exit: send the rest, bounded. Without BYE, which is the recorder's to say."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(0.5)

    def forked(self) -> None:
        """In a child of fork the thread does not exist; let go of the parent's connection."""
        self._thread = None
        if self._link is not None:
            self._link.abandon()
            self._link = None

    # -- the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        pause_s = 0.0
        while not self._stop.wait(pause_s):
            try:
                pause_s = self._turn()
            except Exception as error:
                failures += 1
                pause_s = _LOOK_S
                if failures >= _FAILURES_LIMIT:
                    _say(f"stacks are no longer sampled after {failures} failures: {error!r}")
                    break
        with contextlib.suppress(Exception):
            self._end("failed" if failures >= _FAILURES_LIMIT else "stopped")

    def _turn(self) -> float:
        """Look, sample or send, as is due; the result is how long to wait."""
        began = time.thread_time_ns()
        now = time.monotonic()
        due = now - self._looked_at >= _LOOK_S
        if due:
            self._looked_at = now
            self._look()
        if not self._wanted:
            self._end("not_wanted")
            return _LOOK_S
        self.sample()
        cost_ns = time.thread_time_ns() - began
        if due or self._link is None:
            self.send()
        self.cpu_ns += time.thread_time_ns() - began
        # A sample costs with the depth and the number of threads: the dearer, the rarer.
        self.interval_s = min(max(_SHORTEST_INTERVAL_S, cost_ns / 1e9 / _BUDGET), _LONGEST_INTERVAL_S)
        return self.interval_s

    def _look(self) -> None:
        """Renew the leave to look from outside, and see whether that is refused."""
        self._ptracer.renew()
        if self._mode == "auto":
            if self._mark is None:
                self._mark = refusal_path(self._socket, self._hello().rank, os.getpid())
            self._wanted = self._mark.exists()
        else:
            self._wanted = self._mode == "inprocess"

    def sample(self) -> None:
        """Count one sample of every thread but those of ARGUS.

        A thread other than the main one that stands where it stood is waiting: nobody's top frame.
        """
        main = threading.main_thread().ident
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        frames = sys._current_frames()
        seen: dict[int, tuple[int, int]] = {}
        try:
            for ident, frame in list(frames.items())[:_THREADS_LIMIT]:
                if names.get(ident, "").startswith(OWN_THREADS):
                    continue
                seen[ident] = id(frame), frame.f_lasti
                if ident != main and self._seen.get(ident) == seen[ident]:
                    continue
                node = self._tree.node(frame)
                if node:
                    self._pending[names.get(ident, ""), node] += 1
                else:
                    self.dropped += 1
        finally:
            frames.clear()  # frames keep the user's tensors alive
        self._seen = seen

    def send(self) -> None:
        """Everything that is pending, and our own state; connects first where need be."""
        if self._link is None:
            self._link = Link(self._socket, self._own_hello)
            self._connects = 0
        link = self._link
        link.flush()  # connects: what follows must all be of one connection
        if link.connects != self._connects:
            self._connects, self._sent_nodes = link.connects, 0
        for at in range(self._sent_nodes, len(self._tree.nodes)):
            parent, code = self._tree.nodes[at]
            link.add(wire.StackNode(at + 1, parent, link.name_id(self._label(code))))
        self._sent_nodes = len(self._tree.nodes)
        time_ns = time.time_ns()
        for (thread, node), count in self._pending.items():
            link.add(wire.StackSample(time_ns, link.name_id(thread) if thread else 0, node, count))
        self._pending.clear()
        self._add_state("")
        link.flush()

    def _own_hello(self) -> wire.Hello:
        return dataclasses.replace(self._hello(), channels=1 << wire.Channel.STACKS, shares_page=0)

    def _add_state(self, reason: str) -> None:
        if self._link is not None:
            up, said = not reason, reason or (BY_CHOICE if self._mode == "inprocess" else "")
            reason_id = self._link.name_id(said) if said else 0
            self._link.add(wire.ChannelState(self.cpu_ns, self.dropped, reason_id, wire.Channel.STACKS, up))

    def _label(self, code: CodeType) -> str:
        """`function (package/module.py)`, as py-spy names it, without a line: each name is kept for good."""
        known = self._labels.get(id(code))
        if known is None:
            if len(self._labels) >= _NAMES_LIMIT:
                return "other"
            known = self._labels[id(code)] = (
                f"{getattr(code, 'co_qualname', code.co_name)} ({short_file(code.co_filename)})"
            )
        return known

    def _end(self, reason: str) -> None:
        """Say that nothing is sampled any more, and hang up."""
        if self._link is not None:
            self._add_state(reason)
            self._link.close()
            self._link = None
            self._pending.clear()
            self._seen.clear()


def short_file(path: str) -> str:
    """A file below the import root that it came from: `torch/nn/modules/linear.py`, `train.py`."""
    best = ""
    for root in sys.path:
        if (
            root
            and path.startswith(root)
            and path[len(root) : len(root) + 1] == os.sep
            and len(root) > len(best)
        ):
            best = root
    return path[len(best) + 1 :] if best else path.rpartition(os.sep)[2]


def prepare(mode: str, ptracer: str, socket: Path, hello: Callable[[], wire.Hello]) -> Callable[[], None]:
    """What starts the sampler, to be called once this process has shown that it trains. Never raises.

    `mode` is ARGUS_STACKS and `ptracer` ARGUS_PTRACER. The sampler ends with the process, and not in a fork.
    """

    def begin() -> None:
        try:
            sampler = StackSampler(socket, hello, mode=mode, ptracer=Ptracer(ptracer, socket))
            os.register_at_fork(after_in_child=sampler.forked)
            atexit.register(sampler.close)
            sampler.start()
        except Exception as error:
            _say(f"stacks are not sampled: {error!r}")

    return begin if (mode, ptracer) != ("off", "off") else lambda: None


def _say(text: str) -> None:
    with contextlib.suppress(Exception):  # stderr may be closed or None
        sys.stderr.write(f"argus: {text}\n")
