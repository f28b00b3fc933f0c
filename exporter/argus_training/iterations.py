"""Where an iteration begins and ends, from the order of data fetches, forwards and optimizer steps.

An iteration runs from the end of the one before to the end of its last optimizer step: that border is the
same on all ranks, wherever in a pipeline they are, and what a program does between its steps is somebody's
time. The first one, and the first after a checkpoint or a call of the model without gradients (evaluation, a
rollout), begins with its first data fetch, forward or backward. Two ways to tell:

* By its sequence, once that is known (`sequence.py`, EROICA's method, after ten repetitions). What does not
  match the sequence is no iteration; of one optimizer alone each step is one.
* By its cycle until then, and where no sequence ever repeats (a varying number of micro-batches): complete
  when every optimizer that stepped in the iteration before has stepped; the next fetch or forward closes it.

A program whose optimizer is not torch's (an update by hand, one in C++) has a third: after `WITHOUT_STEPS`
backwards and no step, an iteration is complete with its backward, and the next training forward closes it.
There each micro-batch is one.

So gradient accumulation (many forwards, one step) and several optimizers (one forward and step each) are one
iteration, and the micro-batches that are left at the end of an epoch are a shorter one, of less work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from argus_training.sequence import LONGEST, Match, SequenceDetector, Step
from argus_training.step_progress import StepProgress

WITHOUT_STEPS: Final = 64
"""Backwards before the first optimizer step: more than the micro-batches that most programs accumulate."""


class IterationDetector:
    """Turns events into iterations. Called on the training thread only.

    While all goes as usual the hooks write into `progress` themselves what `opening` and `optimizer_ended`
    would, and say the end of the iteration: calls cost more than all of it.

    Args:
        ended: receives (start_ns, end_ns) of each iteration.
        progress: what has happened since the last optimizer step.
    """

    def __init__(self, ended: Callable[[int, int], None], progress: StepProgress | None = None) -> None:
        self.ended = ended
        self.progress = progress if progress is not None else StepProgress()
        self._cycle = Cycle(self._cycle_ended)
        self._sequence = SequenceDetector()
        self._optimizers: dict[int, int] = {}
        self._numbered = 0
        self._fetched = False
        """Data was fetched since the last optimizer step that was told here."""
        self.learning = True
        """The sequence is not known."""
        self._start_ns = 0
        """Start of the sequence that is being matched."""
        self._seen_ns = 0
        """The latest optimizer step that was told here."""
        self._strange: Step | None = None
        """The latest optimizer step that was not a usual one."""
        self._manual = False
        self._backwards = 0
        """Before the first optimizer step."""

    def opening(self, time_ns: int, trains: bool = False) -> None:
        """A data fetch begins, or a forward pass, which is certain to train."""
        if self._manual:
            return
        progress = self.progress
        if trains and self.by_backward:
            self._close(time_ns)
        if not progress.opened_ns:
            progress.opened_ns = time_ns
        if not trains:
            self._fetched = True
        else:
            progress.forwards += 1
        if self.learning:
            self._cycle.opening(time_ns, trains=trains)

    def paused(self) -> None:
        """No training until now (the model without gradients, a checkpoint), unless within an iteration."""
        if self.by_backward:
            self._close(self.progress.ended_ns)
        if not self.trains:
            self.progress.opened_ns = 0
            self._fetched = False
        if self.learning:
            self._cycle.paused()

    def abandoned(self) -> None:
        """The forwards since the last optimizer step belong to none."""
        self.progress.forwards = 0
        self._cycle.trained = False

    def exhausted(self) -> None:
        """The loader had no more: if that fetch opened an iteration, it did not."""
        progress = self.progress
        if not self.trains and progress.opened_ns > progress.ended_ns:
            self.paused()

    @property
    def trains(self) -> bool:
        """Whether a forward with gradients ran since the last optimizer step."""
        return self.progress.forwards > 0

    @property
    def by_backward(self) -> bool:
        """No optimizer steps: an iteration is complete with its backward."""
        return self._backwards >= WITHOUT_STEPS

    @property
    def awaits_step(self) -> bool:
        """No optimizer has stepped yet, and the user marks nothing: backwards are to be told."""
        return not (self._numbered or self._manual)

    def backward_ended(self, time_ns: int) -> bool:
        """A backward is complete. Whether from this one on no step is waited for (`by_backward`)."""
        self._backwards += 1
        if self.by_backward:
            self.progress.forwards, self.progress.ended_ns = 0, time_ns
        if self._backwards != WITHOUT_STEPS:
            return False
        self.progress.opened_ns = 0
        return True

    @property
    def manual(self) -> bool:
        """The user marks iterations; what the hooks see is ignored."""
        return self._manual

    @manual.setter
    def manual(self, manual: bool) -> None:
        self._manual = manual
        self.progress.steady = False

    def optimizer_begins(self, optimizer: int) -> None:
        """`optimizer` (its id) is about to step."""
        if self.learning and not self._manual:
            self._cycle.optimizer_begins(optimizer)

    def optimizer_ended(self, optimizer: int, time_ns: int) -> None:
        if self._manual:
            return
        progress = self.progress
        forwards = progress.forwards
        opened_ns = progress.opened_ns or progress.ended_ns
        # Usual steps, of which the hooks tell nothing here, have come between.
        if progress.ended_ns != self._seen_ns:
            self._sequence.missed = 0
        progress.forwards = 0
        progress.opened_ns = progress.ended_ns = self._seen_ns = time_ns
        if forwards == progress.usual_forwards and optimizer == progress.usual_optimizer:
            self._sequence.missed = 0
            self.ended(opened_ns, time_ns)
            return
        number = self._optimizers.get(optimizer)
        if number is None:
            self._numbered += 1
            if self.by_backward:
                self._cycle = Cycle(self._cycle_ended)
            self._backwards = 0
            number = self._optimizers[optimizer] = self._numbered
            if not self.learning:
                self._learn_anew(opened_ns)
        step = Step(forwards, number)
        if not self.learning:
            self._match(step, optimizer, opened_ns, time_ns)
            return
        self._cycle.optimizer_ended(optimizer, time_ns)
        fetched, self._fetched = self._fetched, False
        if self._cycle.optimizers <= LONGEST and self._sequence.learn(step, fetched=fetched):
            self.learning = False
            sequence = self._sequence.sequence
            if len(sequence) == 1:
                progress.usual_forwards, progress.usual_optimizer = sequence[0].forwards, optimizer
            self._cycle.finish()  # it ends with this very step

    def forget(self, optimizer: int) -> None:
        """An optimizer is no more: its id may come to stand for another."""
        self._optimizers.pop(optimizer, None)
        if self.progress.usual_optimizer == optimizer:
            self._nothing_usual()

    def mark(self, start_ns: int, end_ns: int) -> None:
        """The user's own iteration."""
        self.manual = True
        self.ended(start_ns, end_ns)

    def finish(self) -> None:
        """The process ends: an iteration whose optimizers have all stepped is complete."""
        if self.by_backward:
            self._close(self.progress.ended_ns)
        elif self.learning and not self._manual:
            self._cycle.finish()

    def _close(self, end_ns: int) -> None:
        """The iteration that is complete by its backward, if one is, ends here."""
        begin_ns, ended_ns = self.progress.opened_ns, self.progress.ended_ns
        if 0 < begin_ns < ended_ns and not self.trains:
            self.progress.opened_ns = end_ns
            self.ended(begin_ns, end_ns)

    def _cycle_ended(self, start_ns: int, end_ns: int) -> None:
        self.ended(start_ns, end_ns)

    def _match(self, step: Step, optimizer: int, opened_ns: int, time_ns: int) -> None:
        whole = self._sequence.is_whole(step)
        # Another optimizer than the only one, twice: it is the one now.
        again = self._sequence.missed and step == self._strange and len(self._sequence.sequence) == 1
        if again and not whole:
            self._learn_anew(opened_ns)
            self._cycle.optimizer_ended(optimizer, time_ns)
            self._sequence.learn(step)
            return
        self._strange = step
        found = self._sequence.match(step)
        if whole or found == Match.WHOLE:
            self.ended(opened_ns, time_ns)
        elif found == Match.FIRST:
            self._start_ns = opened_ns
        elif found == Match.LAST:
            self.ended(self._start_ns, time_ns)
        if not self._sequence.sequence:
            self.learning = True
            self._nothing_usual()
            self._cycle = Cycle(self._cycle_ended)

    def _learn_anew(self, opened_ns: int) -> None:
        """The known sequence comes no more, which the running step shows: it counts as one of the next."""
        self._sequence.forget()
        self.learning, self._strange = True, None
        self._nothing_usual()
        self._cycle = Cycle(self._cycle_ended)
        self._cycle.opening(opened_ns, trains=True)

    def _nothing_usual(self) -> None:
        self.progress.usual_forwards, self.progress.usual_optimizer = -1, 0


class Cycle:
    """Iterations by the optimizers that step in turn: needs no repetition, knows an end only afterwards."""

    def __init__(self, ended: Callable[[int, int], None]) -> None:
        self._ended = ended
        self._start_ns = 0
        self._end_ns = 0
        self._stepped: set[int] = set()
        self._cycle: frozenset[int] = frozenset()
        self._opening_ns = 0
        """Where the next iteration begins, if the running one has ended: at its end, or after a pause."""
        self._fetches_open = False
        """The running iteration began with a fetch: while the cycle is unknown, the next fetch ends it."""
        self.trained = False
        """A training forward ran since the last optimizer step."""

    @property
    def optimizers(self) -> int:
        """How many step in an iteration."""
        return len(self._cycle)

    def opening(self, time_ns: int, *, trains: bool = False) -> None:
        if not self._stepped:
            if not self._start_ns:
                self._start_ns, self._fetches_open = time_ns, not trains
        elif self._stepped >= self._cycle if self._cycle else self._fetches_open and not trains:
            self._close(self._opening_ns or time_ns)
        else:
            self._opening_ns = self._opening_ns or time_ns
        if trains:
            self.trained = True

    def paused(self) -> None:
        if not self.trained:
            if self._stepped:
                self._opening_ns = 0
            else:
                self._start_ns = 0

    def optimizer_begins(self, optimizer: int) -> None:
        """One that steps again does so in a new iteration."""
        if optimizer in self._stepped:
            self._close(self._opening_ns or self._end_ns)

    def optimizer_ended(self, optimizer: int, time_ns: int) -> None:
        self._stepped.add(optimizer)
        self._end_ns = self._opening_ns = time_ns
        self.trained = False

    def finish(self) -> None:
        """All is told: an iteration whose optimizers have all stepped is complete."""
        if self._stepped and self._stepped >= self._cycle:
            self._close(0)

    def _close(self, next_start_ns: int) -> None:
        start, end = self._start_ns, self._end_ns
        self._cycle = frozenset(self._stepped)
        self._stepped.clear()
        self._start_ns, self._opening_ns = next_start_ns, 0
        if start:  # without a seen start there is no duration to report
            self._ended(start, end)
