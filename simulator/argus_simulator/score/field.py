"""Plays scenarios on one stack, and judges each when its job has ended."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from argus_simulator.score.baselines import named
from argus_simulator.score.claims import claims_of
from argus_simulator.score.job_timeline import JobTimeline
from argus_simulator.score.judging import judge, judge_healthy
from argus_simulator.score.members import JobMembers
from argus_simulator.score.playing import Log, Order, unscraped_mark
from argus_simulator.score.results import Result, result_of
from argus_simulator.score.scene import Scene
from argus_simulator.stack import Exporter, Stack
from argus_simulator.stack.processes import Child

_POLL_S = 0.2


@dataclass
class _Playing:
    scene: Scene
    job: str
    history_job: str
    child: Child
    log: Path
    exporter: Exporter
    scraped: bool = True
    ended: float | None = None


class Field:
    """Jobs on a running stack. Use it from the thread that started the stack: children end with it."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._playing: list[_Playing] = []

    def play(
        self,
        scenes: Iterable[Scene],
        finished: Callable[[Result], None],
        failed: Callable[[Scene, str], None],
        meanwhile: Callable[[list[str]], None] = lambda _: None,
    ) -> None:
        """Play all of them at once.

        Args:
            scenes: what to play.
            finished: told each result as it comes.
            failed: told of a scenario that could not be played, and why; the others go on.
            meanwhile: told what is being played, a few times a second.

        Raises:
            StackError: a part of the stack died.
        """
        for scene in scenes:
            self._start(scene)
        while self._playing:
            self._stack.check()
            for playing in list(self._playing):
                self._scrape(playing, not unscraped_mark(playing.log).exists())
                if self._settled(playing):
                    self._playing.remove(playing)
                    if playing.child.exit_status == 0:
                        finished(self._judge(playing))
                    else:
                        failed(playing.scene, playing.child.log_tail())
            meanwhile([playing.scene.name for playing in self._playing])
            time.sleep(_POLL_S)

    def _start(self, scene: Scene) -> None:
        # Nothing of the scenario: whoever reads the name learns nothing.
        job = f"job-{secrets.token_hex(4)}"
        history_job = f"job-{secrets.token_hex(4)}" if scene.has_history else ""
        models = dict.fromkeys((job, history_job), f"model-{job}") if history_job else {}
        exporter = self._stack.add_exporter(f"exporter-{len(self._playing)}", models)
        folder = self._stack.folder / job
        folder.mkdir()
        log, order = folder / "log.json", folder / "order.json"
        order.write_text(Order(scene.playable, job, history_job, str(exporter.socket), str(log)).as_json())
        child = self._stack.start_child(
            job, [sys.executable, "-m", "argus_simulator.score.playing", str(order)]
        )
        self._playing.append(_Playing(scene, job, history_job, child, log, exporter))

    def _scrape(self, playing: _Playing, wanted: bool) -> None:
        if wanted != playing.scraped:
            playing.scraped = wanted
            address = playing.exporter.address
            self._stack.scrape(address) if wanted else self._stack.scrape_no_more(address)

    def _settled(self, playing: _Playing) -> bool:
        if playing.child.exit_status is None:
            return False
        if playing.ended is None:
            playing.ended = time.monotonic()
        return time.monotonic() - playing.ended >= playing.scene.pace.settle_s

    def _judge(self, playing: _Playing) -> Result:
        log = Log.from_json(playing.log.read_text())
        truth, query = playing.scene.truth, self._stack.query
        timeline = JobTimeline(log.start, log.end, log.step_ends)
        members = JobMembers(query, playing.job, time.time() - log.start)
        delivered = self._stack.notifications()
        judgement = judge(truth, timeline, claims_of(playing.job, delivered, members))
        if playing.history_job:
            said = claims_of(playing.history_job, delivered, lambda _: frozenset())
            judgement = judgement.after(judge_healthy(truth, log.history_start, log.start, said))
        onset = timeline.begins(playing.scene.onset_step)
        seconds = int(log.end - log.start)
        up = f'avg_over_time(up{{instance="{playing.exporter.address}"}}[{seconds}s] @ {log.end})'
        return result_of(
            playing.scene,
            log,
            judgement,
            missed_scrapes=1 - min((value for _, value in query(up)), default=0.0),
            missed_evaluations=self._stack.missed_evaluations(),
            baselines=named(query, playing.job, onset, log.end - 1),
        )
