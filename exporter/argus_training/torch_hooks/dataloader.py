"""Waiting for data: phase `data`, kind host: `next()` of a DataLoader in the rank itself.

Patched: `_BaseDataLoaderIter.__next__`, which every DataLoader iterator inherits. Fetches with gradients
switched off belong to evaluation and are left out, and so are those of a thread that reads ahead.
"""

from __future__ import annotations

import functools
from threading import get_ident
from typing import Any

from argus_core import wire
from argus_core.shared_page import SPARE_WORD
from argus_training.hook import Hook, Observer
from argus_training.spans import now
from argus_training.step_log import NO_CODE


class DataHook(Hook):
    name = "data"

    def __init__(self, observer: Observer) -> None:
        super().__init__(observer)
        self._phase = self.recorder.phase("data", wire.Kind.HOST)

    def attach(self, torch: Any) -> None:
        from torch.utils.data import dataloader

        iterator = dataloader._BaseDataLoaderIter
        original = iterator.__next__
        grad_enabled = torch.is_grad_enabled
        recorder = self.recorder
        progress, words, put = self.observer.progress, recorder.words, recorder.put
        phase = self._phase
        slot, code = (phase.slot, phase.code) if phase is not None else (SPARE_WORD, NO_CODE)
        inside = False  # a dataset may read from a DataLoader of its own

        @functools.wraps(original)
        def fetch(loader: Any) -> Any:
            nonlocal inside
            if inside or not grad_enabled() or get_ident() != (recorder.thread or get_ident()):
                return original(loader)
            inside = True
            begin = 0
            try:
                if progress.steady:
                    begin = words[slot] = now()
                    if not progress.opened_ns:
                        progress.opened_ns = begin
                elif self.alive:
                    begin = self._begins()
            except Exception as error:
                self.failed(error)
            try:
                batch = original(loader)
            except BaseException:
                inside = False
                if begin:
                    self._void()
                raise
            inside = False
            try:
                if progress.steady:
                    words[slot] = 0
                    put((code, begin, now()))  # without a begin it is dropped when it is sent
                elif begin:
                    self.recorder.ended(self._phase, begin)
            except Exception as error:
                self.failed(error)
            return batch

        self.replace(iterator, "__next__", fetch)

    def _begins(self) -> int:
        """One that is not as usual."""
        begin = self.recorder.begin(self._phase)
        self.observer.iterations.opening(begin)
        return begin

    def _void(self) -> None:
        """The loader is exhausted (StopIteration), or the dataset raised."""
        try:
            self.recorder.broken(self._phase)
            self.observer.iterations.exhausted()
        except Exception as error:
            self.failed(error)
