"""Waiting for data: phase `data`, kind host: `next()` of a DataLoader in the rank itself.

Patched: `_BaseDataLoaderIter.__next__`, which every DataLoader iterator inherits. Fetches with gradients
switched off belong to evaluation and are left out.
"""

from __future__ import annotations

import functools
from typing import Any

from argus_exporter.producer.hook import Hook, host_span
from argus_exporter.producer.spans import now


class DataHook(Hook):
    name = "data"

    def attach(self, torch: Any) -> None:
        from torch.utils.data import dataloader

        iterator = dataloader._BaseDataLoaderIter
        original = iterator.__next__
        inside = False  # a dataset may read from a DataLoader of its own

        @functools.wraps(original)
        def fetch(loader: Any) -> Any:
            nonlocal inside
            if inside or not self.alive or not torch.is_grad_enabled():
                return original(loader)
            inside = True
            begin_ns = self._begins()
            try:
                batch = original(loader)
            except BaseException:
                self._void()
                raise
            finally:
                inside = False
            self._ends(begin_ns)
            return batch

        self.replace(iterator, "__next__", fetch)

    def _begins(self) -> int:
        begin_ns = now()
        try:
            self.observer.iterations.opening(begin_ns)
        except Exception as error:
            self.failed(error)
        return begin_ns

    def _ends(self, begin_ns: int) -> None:
        try:
            host_span(self.recorder, "data", begin_ns)
        except Exception as error:
            self.failed(error)

    def _void(self) -> None:
        """The loader is exhausted (StopIteration), or the dataset raised."""
        try:
            self.observer.iterations.void()
        except Exception as error:
            self.failed(error)
