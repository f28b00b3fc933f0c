"""Rules played over a past, far faster than real time, by the engine of a real Prometheus.

Prometheus evaluates rules at the present only, promtool all groups at one interval, and `create-blocks-from
rules` knows no rule that reads another. Here each rule is asked as a range query over half an hour, which is
its expression at each of its evaluations, and what it gives is written back with those times; then come the
rules that read it. Only rules that read one another in a circle, and expressions with `@ end()`, are asked
evaluation by evaluation (`rules.stages`). `for`, `keep_firing_for` and the markers that end a series are
ours.
"""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from argus_core.remote_write import Labels
from argus_simulator.fast_play.alerts import AlertState, Spell
from argus_simulator.fast_play.rules import Rule, stages
from argus_simulator.fast_play.storage import STALE, Floats, Ints, QueryFailed, Storage, labels_of_text

Late = Literal["none", "all", "random"]
"""Which rules see what others recorded at the moment of their evaluation only one evaluation later: none, as
in Prometheus; all, as in vmalert; or each rule at each evaluation by chance."""
LATE: Final[tuple[Late, ...]] = ("none", "all", "random")
_CHUNK_MS: Final = 1_800_000
_BEFORE_MS: Final = 1
"""An evaluation that is late looks at the moment before its own: at `Rule.expr_just_before`."""
_Bools = NDArray[np.bool_]
_Dense = dict[Labels, tuple[_Bools, Floats]]
"""By series: at which of some evaluations it has a value, and which."""


@dataclass
class _State:
    """What one rule remembers.

    Attributes:
        known: labels of its series by the text of those of its expression's.
        present: series that the last evaluation wrote.
    """

    rule: Rule
    number: int
    alert: AlertState | None
    known: dict[str, Labels] = field(default_factory=dict)
    present: set[Labels] = field(default_factory=set)

    def labels(self, text: str) -> Labels:
        """Of the series (of an alert: of the alert) that a result with these labels becomes."""
        found = self.known.get(text)
        if found is None:
            rule = self.rule
            name = ("alertname", rule.alert) if rule.alert else ("__name__", rule.record)
            found = self.known[text] = _sorted({**labels_of_text(text), **rule.labels, name[0]: name[1]})
        return found


class Evaluator:
    """Plays rules over the series in a storage.

    Args:
        storage: where scraped series are, and where results go.
        rules: as `rules.read_rules` gives them.
        late: whether results are seen late.
    """

    def __init__(self, storage: Storage, rules: Sequence[Rule], late: Late = "none") -> None:
        self._storage, self._late = storage, late
        states = {
            rule: _State(rule, number, AlertState(rule.for_ms, rule.keep_ms) if rule.alert else None)
            for number, rule in enumerate(rules)
        }
        self._stages = [([states[rule] for rule in stage.rules], stage.together) for stage in stages(rules)]
        self._running: dict[Labels, tuple[int, int]] = {}
        self._over: list[Spell] = []
        self.failures: dict[str, str] = {}
        """The last error by rule, of evaluations that the engine refused."""

    def advance(self, begin_ms: int, end_ms: int) -> None:
        """Evaluate all that is due in [begin, end); scraped series up to there must be written."""
        while begin_ms < end_ms:
            until = min(begin_ms + _CHUNK_MS, end_ms)
            for members, together in self._stages:
                if together:
                    self._step(members, begin_ms, until)
                else:
                    self._range(members[0], begin_ms, until)
            begin_ms = until

    def spells(self) -> list[Spell]:
        """Of all alerts so far, by their begin."""
        found = self._over + [_spell(series, *times) for series, times in self._running.items()]
        return sorted(found, key=lambda spell: (spell.begin_ms, spell.labels, spell.state))

    # -- evaluations ------------------------------------------------------------------

    def _range(self, state: _State, begin_ms: int, end_ms: int) -> None:
        """All evaluations of one rule at once."""
        times = state.rule.group.evaluations(begin_ms, end_ms)
        if not times:
            return
        try:
            dense = self._results(state, times)
        except QueryFailed:  # at one time at least; it goes on at the others
            self._step([state], begin_ms, end_ms)
            return
        self._store(state, np.array(times), dense)

    def _results(self, state: _State, times: range) -> _Dense:
        """Raises:
        QueryFailed.
        """
        late = self._is_late(state, times)
        dense: _Dense = {}
        rule = state.rule
        for expr, shift, wanted in ((rule.expr, 0, ~late), (rule.expr_just_before, _BEFORE_MS, late)):
            if not wanted.any():
                continue
            for text, (at, values) in self._storage.over(expr, times, shift).items():
                kept = wanted[at]
                at, values = at[kept], values[kept]
                there, held = dense.setdefault(
                    state.labels(text), (np.zeros(len(times), np.bool_), np.zeros(len(times)))
                )
                if there[at].any():
                    raise QueryFailed(f"{state.rule.name}: two results become one series")
                there[at], held[at] = True, values
        return dense

    def _step(self, states: Sequence[_State], begin_ms: int, end_ms: int) -> None:
        """Rules that go on together, each evaluation of all groups in its time."""
        due = heapq.merge(
            *(
                [(at, state.number, state) for at in state.rule.group.evaluations(begin_ms, end_ms)]
                for state in states
            ),
            key=lambda one: one[:2],
        )
        for at_ms, _, state in due:
            rule = state.rule
            late = self._is_late(state, range(at_ms, at_ms + 1))[0]
            asked = (rule.expr_just_before, at_ms - _BEFORE_MS) if late else (rule.expr, at_ms)
            dense: _Dense = {}
            try:
                for text, value in self._storage.at(*asked).items():
                    labels = state.labels(text)
                    if labels in dense:
                        raise QueryFailed(f"{state.rule.name}: two results become one series")
                    dense[labels] = _HERE, np.array([value])
            except QueryFailed as error:
                self.failures[state.rule.name] = str(error)
                continue
            if dense or state.present:
                self._store(state, np.array([at_ms]), dense)

    def _is_late(self, state: _State, times: range) -> _Bools:
        if self._late == "random":
            coins = (zlib.crc32(b"%d %d" % (state.number, at)) >> 7 & 1 for at in times)
            return np.fromiter(coins, np.bool_)
        return np.full(len(times), self._late == "all")

    # -- results ------------------------------------------------------------------

    def _store(self, state: _State, times: Ints, dense: _Dense) -> None:
        """Write results, and the end of each series that is gone."""
        if state.alert is not None:
            dense = self._alerts(state.alert, times, dense)
            self._note(times, dense, state.present)
        body: dict[Labels, tuple[Ints, Floats]] = {}
        present: set[Labels] = set()
        for labels in dense.keys() | state.present:
            there, values = dense.get(labels) or (np.zeros(len(times), np.bool_), np.zeros(len(times)))
            before = np.concatenate(([labels in state.present], there[:-1]))
            written = there | before
            if written.all():
                body[labels] = times, np.where(there, values, STALE)
            else:
                body[labels] = times[written], np.where(there, values, STALE)[written]
            if there[-1]:
                present.add(labels)
        state.present = present
        self._storage.write(body)

    def _alerts(self, alert: AlertState, times: Ints, found: _Dense) -> _Dense:
        """ALERTS and ALERTS_FOR_STATE after each evaluation."""
        dense: _Dense = {}

        def put(labels: Labels, number: int, value: float) -> None:
            there, values = dense.setdefault(labels, (np.zeros(len(times), np.bool_), np.zeros(len(times))))
            there[number], values[number] = True, value

        if not found and not alert.active:
            return dense
        for number, at_ms in enumerate(times.tolist()):
            here = {labels for labels, (there, _) in found.items() if there[number]}
            for labels, state, since in alert.evaluate(at_ms, here):
                series = _sorted({**dict(labels), "__name__": "ALERTS", "alertstate": state})
                put(series, number, 1.0)
                put(_sorted({**dict(labels), "__name__": "ALERTS_FOR_STATE"}), number, since)
        return dense

    def _note(self, times: Ints, dense: _Dense, before: set[Labels]) -> None:
        """Keep from when to when alerts were there."""
        for series in dense.keys() | before:
            if ("__name__", "ALERTS") not in series:
                continue
            there = dense[series][0] if series in dense else np.zeros(len(times), np.bool_)
            for at_ms, now in zip(times.tolist(), there.tolist(), strict=True):
                spell = self._running.pop(series, None)
                if now:
                    self._running[series] = (spell[0] if spell else at_ms, at_ms)
                elif spell:
                    self._over.append(_spell(series, *spell))


_HERE: Final = np.ones(1, np.bool_)


def _spell(series: Labels, begin_ms: int, end_ms: int) -> Spell:
    labels = dict(series)
    state = labels.pop("alertstate")
    del labels["__name__"]
    return Spell(_sorted(labels), state, begin_ms, end_ms)


def _sorted(labels: Mapping[str, str]) -> Labels:
    """Without empty values, as Prometheus has them."""
    return tuple(sorted((name, value) for name, value in labels.items() if value))
