"""Where an iteration begins and ends, from the order of data fetches, forwards and optimizer steps.

An iteration runs from its first data fetch (or forward, where data does not come from a DataLoader) to the
end of its last optimizer step. Two ways to tell:

* By its sequence, once that is known (`sequence.py`, EROICA's method, after ten repetitions). What does not
  match the sequence is no iteration.
* By its cycle until then, and where no sequence ever repeats (a varying number of micro-batches): complete
  when every optimizer that stepped in the iteration before has stepped; the next fetch or forward closes it.

So gradient accumulation (many forwards, one step) and several optimizers (one forward and step each) are one
iteration, and the micro-batches that are left at the end of an epoch are a shorter one, of less work.
"""

from __future__ import annotations

from collections.abc import Callable

from argus_training.sequence import Match, SequenceDetector, Step
from argus_training.step_progress import StepProgress


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
        self._manual = False

    def opening(self, time_ns: int, trains: bool = False) -> None:
        """A data fetch begins, or a forward pass, which is certain to train."""
        if self._manual:
            return
        progress = self.progress
        if not progress.opened_ns:
            progress.opened_ns = time_ns
        if not trains:
            self._fetched = True
        else:
            progress.forwards += 1
            progress.forward_ns = time_ns
        if self.learning:
            self._cycle.opening(time_ns, trains=trains)

    def void(self) -> None:
        """What opened was no training (evaluation, an exhausted loader): forget it."""
        if not self.trains:
            self.progress.opened_ns = 0
            self._fetched = False
        if self.learning:
            self._cycle.void()

    @property
    def trains(self) -> bool:
        """Whether a forward with gradients ran since the last optimizer step."""
        return self.progress.forward_ns > self.progress.ended_ns

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
        progress.forwards = progress.opened_ns = 0
        progress.ended_ns = self._seen_ns = time_ns
        if forwards == progress.usual_forwards and optimizer == progress.usual_optimizer:
            self._sequence.missed = 0
            self.ended(opened_ns, time_ns)
            return
        number = self._optimizers.get(optimizer)
        if number is None:
            self._numbered += 1
            number = self._optimizers[optimizer] = self._numbered
        step = Step(forwards, number)
        if not self.learning:
            self._match(step, opened_ns, time_ns)
            return
        self._cycle.optimizer_ended(optimizer, time_ns)
        fetched, self._fetched = self._fetched, False
        if self._sequence.learn(step, fetched=fetched):
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
        if self.learning and not self._manual:
            self._cycle.finish()

    def _cycle_ended(self, start_ns: int, end_ns: int) -> None:
        self.ended(start_ns, end_ns)

    def _match(self, step: Step, opened_ns: int, time_ns: int) -> None:
        rest = self._sequence.is_rest(step)
        found = self._sequence.match(step)
        if rest or found == Match.WHOLE:
            self.ended(opened_ns, time_ns)
        elif found == Match.FIRST:
            self._start_ns = opened_ns
        elif found == Match.LAST:
            self.ended(self._start_ns, time_ns)
        if not self._sequence.sequence:
            self.learning = True
            self._nothing_usual()
            self._cycle = Cycle(self._cycle_ended)

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
        """First fetch or forward since the last optimizer step: it may open the next iteration."""
        self._fetches_open = False
        """The running iteration began with a fetch: while the cycle is unknown, the next fetch ends it."""
        self._trained = False

    def opening(self, time_ns: int, *, trains: bool = False) -> None:
        if not self._stepped:
            if not self._start_ns:
                self._start_ns, self._fetches_open = time_ns, not trains
        elif self._stepped >= self._cycle if self._cycle else self._fetches_open and not trains:
            self._close(self._opening_ns or time_ns)
        else:
            self._opening_ns = self._opening_ns or time_ns
        if trains:
            self._trained = True

    def void(self) -> None:
        if not self._trained:
            if self._stepped:
                self._opening_ns = 0
            else:
                self._start_ns = 0

    def optimizer_begins(self, optimizer: int) -> None:
        """One that steps again does so in a new iteration.

        Where no fetch or forward was seen between (a compiled step function), it began at the last end.
        """
        if optimizer in self._stepped:
            self._close(self._opening_ns or self._end_ns)

    def optimizer_ended(self, optimizer: int, time_ns: int) -> None:
        self._stepped.add(optimizer)
        self._end_ns = time_ns
        self._opening_ns = 0
        self._trained = False

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
