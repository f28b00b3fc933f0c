"""Waiting for data: phase `data`, kind host: `next()` of a DataLoader in the rank itself.

Patched: `_BaseDataLoaderIter.__next__`, which every DataLoader iterator inherits. Fetches with gradients
switched off belong to evaluation and are left out, and so are those of a thread that reads ahead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
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
        # Of fetches without gradients: the step of the last, and how many in it; none was in the one before.
        self._step = 0
        self._fetches = 0
        self._unusual = False

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
            if inside or get_ident() != (recorder.thread or get_ident()):
                return original(loader)
            if not grad_enabled():
                self._without_gradients()
                return original(loader)
            inside = True
            begin = 0
            try:
                try:
                    if progress.steady:
                        begin = words[slot] = now()
                        if not progress.opened_ns:
                            progress.opened_ns = begin
                    elif self.alive:
                        begin = self._begins()
                except Exception as error:
                    self.failed(error)
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
        self.hide_from_dynamo((fetch,), "_begins", "_void", "_without_gradients")

    def _begins(self) -> int:
        """One that is not as usual."""
        begin = self.recorder.begin(self._phase)
        self.observer.iterations.opening(begin)
        return begin

    def _without_gradients(self) -> None:
        """An evaluation, by whatever module (an average of the weights), or part of each iteration.

        The former is certain where only what DDP wraps is in evaluation mode; and where the sequence of an
        iteration is known, none runs, the one before had no such fetch, and a second one comes.
        """
        try:
            if not self.alive:
                return
            observer, step = self.observer, self.recorder.step
            if step != self._step:
                self._unusual = step > self._step + 1
                self._step, self._fetches = step, 0
            self._fetches += 1
            between = not (observer.iterations.trains or observer.iterations.learning)
            if (between and self._unusual and self._fetches > 1) or any(map(_evaluated, observer.reducers)):
                observer.evaluates()
        except Exception as error:
            self.failed(error)

    def _void(self) -> None:
        """The loader is exhausted (StopIteration), or the dataset raised."""
        try:
            self.recorder.broken(self._phase)
            self.observer.iterations.exhausted()
        except Exception as error:
            self.failed(error)


def _evaluated(reducer: Callable[[], Any]) -> bool:
    """Whether it trains, and the module within does not."""
    module = reducer()
    inner = None if module is None else module._modules.get("module")
    return inner is not None and module.training and not inner.training
