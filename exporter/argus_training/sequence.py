"""The training iteration as a repeated sequence: what EROICA watches to find it without the user's help.

The sequence is made of optimizer steps; each stands for itself and for the training forwards since the step
before it. Data fetches do not count: loaders look ahead by a batch or two, and not at the end of an epoch.
After M = 10 identical repetitions it is known, and each later match is an iteration; what does not match is
none. After K = 200 events without a match it is looked for anew. Steps of one optimizer alone are an
iteration each, also where short epochs repeat as a whole, and with more or fewer forwards than usual.

Source: EROICA 4.1, iteration detection; EROICA counts fetches too.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

REPETITIONS: Final = 10
PATIENCE: Final = 200
LONGEST: Final = 16
"""Optimizer steps in the longest sequence: 15 of a critic to one of the generator."""


class Step(NamedTuple):
    """One optimizer step, as an element of the sequence."""

    forwards: int
    """Training forwards since the step before."""
    optimizer: int


class Match:
    """What a step is in the known sequence. Plain numbers, since they are compared at every step."""

    NONE: Final = 0
    FIRST: Final = 1
    """It begins a sequence that is not complete yet."""
    WITHIN: Final = 2
    LAST: Final = 3
    """It completes a sequence that began earlier."""
    WHOLE: Final = 4
    """It is a whole sequence alone."""


class SequenceDetector:
    """Finds the sequence, then matches it. `sequence` is empty while it is not known."""

    def __init__(
        self, repetitions: int = REPETITIONS, longest: int = LONGEST, patience: int = PATIENCE
    ) -> None:
        self._repetitions = repetitions
        self._patience = patience
        self._recent: deque[Step] = deque(maxlen=longest)
        self._fetched: deque[bool] = deque(maxlen=longest)
        """Whether data was fetched before each of them."""
        self._repeated = [0] * (longest + 1)
        """For each period p: how many steps in a row equalled the one p steps before."""
        self._at = 0
        self.missed = 0
        """Events since the last match."""
        self.sequence: tuple[Step, ...] = ()

    def learn(self, step: Step, *, fetched: bool = False) -> bool:
        """Take a step while the sequence is unknown. Whether this step completes its last repetition.

        Args:
            fetched: data was fetched since the step before: there a sequence begins.
        """
        recent = self._recent
        for period in range(1, len(recent) + 1):
            self._repeated[period] = self._repeated[period] + 1 if recent[-period] == step else 0
        recent.append(step)
        self._fetched.append(fetched)
        for period in range(1, len(recent) + 1):  # the shortest wins: AAAA is four times A
            if self._repeated[period] >= (self._repetitions - 1) * period:
                sequence = tuple(recent)[-period:]
                opens = list(self._fetched)[-period:]
                if not any(opens):
                    opens = [one.forwards > 0 for one in sequence]
                if opens[0] or not any(opens):  # none at all: a compiled step function
                    if all(one.optimizer == step.optimizer for one in sequence):
                        sequence = (max(sequence),)  # with the most forwards: the rest of an epoch has fewer
                    self.sequence, self._at, self.missed = sequence, 0, 0
                    return True
        return False

    def match(self, step: Step) -> int:
        """Take a step while the sequence is known. After too many misses it is forgotten."""
        sequence = self.sequence
        if step == sequence[self._at]:
            first = self._at == 0
            self._at += 1
            if self._at < len(sequence):
                return Match.FIRST if first else Match.WITHIN
            self._at = self.missed = 0
            return Match.WHOLE if first else Match.LAST
        self.missed += 1 + step.forwards
        if self.missed > self._patience:
            self.forget()
            return Match.NONE
        if self._at and step == sequence[0]:  # not the one that was running, but perhaps the next
            self._at = 0
            return self.match(step)
        self._at = 0
        return Match.NONE

    def is_whole(self, step: Step) -> bool:
        """Whether it is the known step, with more or fewer forwards (a budget of tokens, an epoch's rest)."""
        sequence = self.sequence
        return len(sequence) == 1 and step.forwards > 0 and step.optimizer == sequence[0].optimizer

    def forget(self) -> None:
        self.sequence = ()
        self._at = self.missed = 0
        self._recent.clear()
        self._fetched.clear()
        self._repeated = [0] * len(self._repeated)
