"""Brings the outbox to the store, oldest first and what was denied last, for as long as it takes."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final

from argus_core.log import Log
from argus_core.store import ObjectStore, StoreError, StoreUnavailable
from argus_exporter.traces.outbox import Outbox, Waiting

log = Log(__name__)

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0


class Uploader:
    """One thread that uploads; a store that is away or refuses is asked again with growing pauses.

    Args:
        outbox: what to upload; files that a former process left go first.
        store: where to.
        first_pause_s: after the first failure; doubles up to a minute.
    """

    def __init__(self, outbox: Outbox, store: ObjectStore, *, first_pause_s: float = _FIRST_PAUSE_S) -> None:
        self._outbox = outbox
        self._store = store
        self._first_pause_s = first_pause_s
        self._thread = threading.Thread(target=self._run, name="argus-uploads", daemon=True)
        self._changed = threading.Condition()
        self._put = 0
        self._stopping = False
        self.results: Counter[str] = Counter()
        """Uploads tried, by result: success, unavailable, denied."""
        self.uploaded_bytes = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the upload under way, or in a few seconds; the rest waits for the next start."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(timeout=5.0)

    def notify(self) -> None:
        """There is something new in the outbox."""
        with self._changed:
            self._put += 1
            self._changed.notify_all()

    def wait_until_empty(self, limit_s: float) -> bool:
        """Whether the outbox became empty in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._outbox.oldest() is None, limit_s)

    def _run(self) -> None:
        pause_s = 0.0
        failing = False
        while True:
            with self._changed:
                if pause_s:
                    self._changed.wait_for(lambda: self._stopping, pause_s)
                else:
                    self._changed.wait_for(lambda: self._stopping or self._outbox.oldest() is not None)
                if self._stopping:
                    return
            waiting = self._outbox.oldest()
            if waiting is None:
                pause_s = 0.0
                continue
            error = self._upload(waiting)
            if error is None:
                if failing:
                    log.info("trace store takes uploads again", store=self._store.name)
                pause_s, failing = 0.0, False
            else:
                if not failing:
                    log.warning("trace not uploaded, trying again", key=waiting.key, error=error)
                pause_s = min(max(2 * pause_s, self._first_pause_s), _LONGEST_PAUSE_S)
                failing = True

    def _upload(self, waiting: Waiting) -> StoreError | None:
        """What went wrong that may be right later."""
        try:
            with waiting.path.open("rb") as source:
                self._store.put(waiting.key, source)
        except StoreUnavailable as error:
            self.results["unavailable"] += 1
            return error
        except StoreError as error:
            self.results["denied"] += 1
            self._outbox.later(waiting)  # it may be this one alone, as where a policy allows some jobs
            return error
        except FileNotFoundError:  # the budget dropped it before we began
            return None
        except Exception:  # such as a bug of ours: one file must not stop all others
            log.exception("trace refused", key=waiting.key)
            self._outbox.refuse(waiting)
            return None
        self._outbox.done(waiting)
        self.results["success"] += 1
        self.uploaded_bytes += waiting.size
        with self._changed:
            self._changed.notify_all()
        return None
