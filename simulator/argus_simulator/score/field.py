"""Plays scenarios on one stack, and judges each when its job has ended."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from argus_simulator.score.assessment import assess
from argus_simulator.score.playing import Log, Order, unscraped_mark
from argus_simulator.score.results import Result
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
        seconds = int(log.end - log.start)
        up = f'avg_over_time(up{{instance="{playing.exporter.address}"}}[{seconds}s] @ {log.end})'
        result, _ = assess(
            playing.scene,
            log,
            playing.job,
            playing.history_job,
            self._stack.query,
            self._stack.notifications(),
            time.time(),
            missed_scrapes=1 - min((value for _, value in self._stack.query(up)), default=0.0),
            missed_evaluations=self._stack.missed_evaluations(),
        )
        return result
