"""Scenarios of the fault lab in virtual time, judged by the lab's own judge on what worker and rules said."""

from __future__ import annotations

import concurrent.futures
import json
import math
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from argus_simulator.engine.faults import Fault
from argus_simulator.fast_play import worker
from argus_simulator.fast_play.delivery import Delivery
from argus_simulator.fast_play.evaluate import Evaluator, Late
from argus_simulator.fast_play.history import SCRAPE_MS, History, record
from argus_simulator.fast_play.players import players, until_stopped
from argus_simulator.fast_play.rules import aligned, read_rules
from argus_simulator.fast_play.storage import Storage
from argus_simulator.score import report
from argus_simulator.score.assessment import assess
from argus_simulator.score.batches import Capacity, batches
from argus_simulator.score.claims import Claim, incidents, sentences
from argus_simulator.score.job_timeline import JobTimeline
from argus_simulator.score.playing import Log, effect_of
from argus_simulator.score.results import Result
from argus_simulator.score.scene import Scene
from argus_simulator.stack import Notification, Samples

_EPOCH_MS: Final = 1_700_000_000_000
"""Virtual time begins here."""
_JOBS, _RANKS = 8, 160
"""That share a Prometheus at most: more of them cost less each, and come later."""


@dataclass(frozen=True)
class Engine:
    """What evaluates.

    Attributes:
        rules: files.
        alertmanager: its configuration, which says what is told.
        late: whether rules see recorded series late; groups are then evaluated at multiples of their
            intervals, as vmalert does.
        method: `judge.method` of the L3 worker.
    """

    rules: tuple[Path, ...]
    alertmanager: Path
    late: Late = "none"
    method: worker.Method = "modes"


@dataclass
class Batch:
    """Scenarios that were played side by side.

    Attributes:
        results: one a scenario.
        stories: for each result its lines: what was injected, who was told of when.
        failures: rules whose evaluation failed at some moment, or cycles of the worker, with the reason.
        job_seconds: virtual, healthy runs before included.
        record_s, judge_s, evaluate_s: time of this machine; the second of the worker, which has nothing to
            judge without kernels.
    """

    results: list[Result] = field(default_factory=list)
    stories: list[list[str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    job_seconds: float = 0.0
    record_s: float = 0.0
    judge_s: float = 0.0
    evaluate_s: float = 0.0


@dataclass(frozen=True)
class _Played:
    scene: Scene
    job: History
    before: History | None
    """The healthy run before."""


def play_all(scenes: Sequence[Scene], engine: Engine, processes: int) -> Iterator[Batch]:
    """Play scenarios in so many processes side by side; each batch when it is judged.

    Raises:
        UnplayableRules, StackError: of any process.
    """
    capacity = Capacity(min(_JOBS, math.ceil(len(scenes) / processes)), _RANKS)
    with players(processes) as pool:
        running = [pool.submit(until_stopped, play, batch, engine) for batch in batches(scenes, capacity)]
        for done in concurrent.futures.as_completed(running):
            yield done.result()


def play(scenes: Sequence[Scene], engine: Engine) -> Batch:
    """Play scenarios side by side, evaluate the rules over them, and judge each."""
    batch = Batch()
    began = time.perf_counter()
    played = [_record(scene, f"job-{number}") for number, scene in enumerate(scenes)]
    histories = [one for of in played for one in (of.before, of.job) if one is not None]
    batch.job_seconds = sum(one.end_ms - one.begin_ms for one in histories) / 1000
    batch.record_s = time.perf_counter() - began
    began = time.perf_counter()
    rules = read_rules(engine.rules, offset_ms=None if engine.late == "none" else aligned)
    with tempfile.TemporaryDirectory(prefix="argus-play-") as folder, Storage(Path(folder)) as storage:
        for history in histories:
            storage.write(history.series)
        end_ms = max(_judged_ms(one) for one in played)
        if any(scene.playable.signals != "hooks" for scene in scenes):
            judging = time.perf_counter()
            problems = worker.judge(storage.url, _EPOCH_MS, end_ms, engine.method)
            batch.failures = [f"worker: {why}" for why in problems]
            batch.judge_s = time.perf_counter() - judging
        evaluator = Evaluator(storage, rules, engine.late)
        evaluator.advance(_EPOCH_MS, end_ms)
        batch.evaluate_s = time.perf_counter() - began - batch.judge_s
        batch.failures += [f"rule failed: {name}: {why}" for name, why in evaluator.failures.items()]
        told = Delivery(engine.alertmanager).notifications(evaluator.spells())
        for one in played:
            result, story = _judge(one, storage, told)
            batch.results.append(result)
            batch.stories.append(story)
    return batch


def _record(scene: Scene, name: str) -> _Played:
    begin_ms = _EPOCH_MS + zlib.crc32(f"{scene.key}".encode()) % SCRAPE_MS
    before = None
    model = f"model-{name}"
    if scene.has_history:
        before = record(
            scene.history(),
            f"{name}-before",
            begin_ms * 1_000_000,
            scene.pace.history_s + scene.pace.step_s,
            steps=scene.history_steps,
            settle_s=scene.pace.settle_s,
            model=model,
        )
        begin_ms = before.end_ms
    job = record(
        scene.scenario,
        name,
        begin_ms * 1_000_000,
        scene.seconds + scene.pace.step_s,  # the last step may end a little late: their number decides
        steps=scene.steps,
        settle_s=scene.pace.settle_s,
        model=model if before else "",
    )
    return _Played(scene, job, before)


def _judged_ms(played: _Played) -> int:
    return played.job.end_ms + round(played.scene.pace.settle_s * 1000)


def _judge(played: _Played, storage: Storage, told: Sequence[Notification]) -> tuple[Result, list[str]]:
    scene, job, before = played.scene, played.job, played.before
    begin, end, judged_ms = job.begin_ms / 1000, job.end_ms / 1000, _judged_ms(played)
    step_ends = tuple(job.progress.step_ends)
    log = Log(
        history_start=before.begin_ms / 1000 if before else begin,
        start=begin,
        end=end,
        step_ends=step_ends,
        effect=None if job.progress.hung else effect_of(scene, begin, step_ends),
        lag_seconds=0.0,
        dropped=job.progress.dropped,
    )

    def query(text: str) -> Samples:
        return [(json.loads(labels), value) for labels, value in storage.at(text, judged_ms).items()]

    result, claims = assess(
        scene,
        log,
        job.training_job,
        before.training_job if before else "",
        query,
        [one for one in told if one.received * 1000 <= judged_ms],
        judged_ms / 1000,
    )
    return result, list(_story(scene, JobTimeline(begin, end, step_ends), result, claims))


def _story(scene: Scene, timeline: JobTimeline, result: Result, claims: Sequence[Claim]) -> Iterator[str]:
    """What was injected when, and what was told when, in minutes and seconds of the job."""

    def clock(at: float) -> str:
        minutes, seconds = divmod(round(max(0.0, min(at, timeline.end) - timeline.start)), 60)
        return f"{minutes:3}:{seconds:02}"

    yield f"seed {result.seed}, {report.line(result)}"
    for fault in scene.scenario.faults.values():
        end = timeline.end if fault.end_step is None else timeline.begins(fault.end_step)
        yield f"{clock(timeline.begins(fault.onset_step))} to {clock(end)}  INJECTED {_what(fault)}"
    alike: dict[tuple[str, str, str], list[Claim]] = {}
    for claim in claims:
        alike.setdefault((claim.alert, claim.severity, claim.cause), []).append(claim)
    for same in alike.values():
        pieces = len(incidents(same, SCRAPE_MS / 1000))
        again = f", in {pieces} pieces" if pieces > 1 else ""
        yield f"{clock(same[0].start)} to {clock(max(one.end for one in same))}  {sentences(same)[0]}{again}"


def _what(fault: Fault) -> str:
    size = [
        f"{name} {getattr(fault, name):g}"
        for name, usual in (("factor", 1.0), ("seconds", 0.0), ("share", 1.0))
        if getattr(fault, name) != usual
    ]
    return f"{fault.mechanism} {' '.join(size)} rank {','.join(map(str, fault.ranks))}".replace("  ", " ")
