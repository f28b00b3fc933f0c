"""Waiting for data: phase `data`, kind host: `next()` of a DataLoader in the rank itself.

Patched: `_BaseDataLoaderIter.__next__`, which every DataLoader iterator inherits. Fetches with gradients
switched off belong to evaluation and are left out.
"""

from __future__ import annotations

import functools
from typing import Any

from argus_core import wire
from argus_core.shared_page import SPARE_WORD
from argus_exporter.producer.hook import Hook
from argus_exporter.producer.spans import Phase, now


class DataHook(Hook):
    name = "data"
    _phase: Phase | None = None

    def attach(self, torch: Any) -> None:
        from torch.utils.data import dataloader

        iterator = dataloader._BaseDataLoaderIter
        original = iterator.__next__
        grad_enabled = torch.is_grad_enabled
        opening, recorder = self.observer.iterations.opening, self.recorder
        words, waiting = recorder.words, recorder.waiting
        put = waiting.append
        phase = self._phase = recorder.phase("data", wire.Kind.HOST)
        slot = phase.slot if phase is not None else SPARE_WORD
        inside = False  # a dataset may read from a DataLoader of its own

        @functools.wraps(original)
        def fetch(loader: Any) -> Any:
            nonlocal inside
            if inside or not self.alive or not grad_enabled():
                return original(loader)
            inside = True
            begin = 0
            try:
                begin = words[slot] = now()
                opening(begin)
            except Exception as error:
                self.failed(error)
            try:
                batch = original(loader)
            except BaseException:
                inside = False
                self._void()
                raise
            inside = False
            try:
                if begin and recorder.alive:  # no child of fork that comes out of here
                    end = now()
                    words[slot] = 0
                    if len(waiting) < recorder.room:
                        put((phase, begin, end - begin, recorder.step))
                    else:
                        recorder.span(phase, begin, end - begin)
            except Exception as error:
                self.failed(error)
            return batch

        self.replace(iterator, "__next__", fetch)

    def _void(self) -> None:
        """The loader is exhausted (StopIteration), or the dataset raised."""
        try:
            self.recorder.broken(self._phase)
            self.observer.iterations.void()
        except Exception as error:
            self.failed(error)
