"""The log of the hooks of a step: entries come back whole, in order, and once."""

from __future__ import annotations

import threading

from argus_training.step_log import ITERATION, StepLog


def test_entries_come_back_in_order_and_once() -> None:
    """Several may be written by one call; what is taken is gone."""
    log = StepLog()
    log.put((1, 10, 20))
    log.put((2, 20, 30, ITERATION, 10, 30))
    log.put((3, 30, 40))
    log.put((None, 30, 40, 5, 1, 0))
    assert len(log) == 4
    assert list(log.take(2)) == [(1, 10, 20), (2, 20, 30), (ITERATION, 10, 30)]
    assert list(log.take(2)) == [(3, 30, 40), (None, 30, 40, 5, 1, 0)]
    assert not log
    assert list(log.take(2)) == []


def test_entries_of_many_threads_stay_whole() -> None:
    """Four write while a fifth takes: no entry is lost, torn or told twice."""
    log, each = StepLog(), 5000

    def write(code: int) -> None:
        for number in range(each):
            log.put((code, number, number + code, ITERATION, number, code))

    writers = [threading.Thread(target=write, args=(code,)) for code in range(1, 5)]
    for writer in writers:
        writer.start()
    taken = []
    while any(writer.is_alive() for writer in writers) or log:
        taken += log.take(100)
    for code in range(1, 5):
        assert [entry for entry in taken if entry[0] == code] == [(code, n, n + code) for n in range(each)]
        ends = [begin for kind, begin, end in taken if (kind, end) == (ITERATION, code)]
        assert ends == list(range(each))
