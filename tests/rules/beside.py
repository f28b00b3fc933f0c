"""Stories of one module, played beside one another in one storage of promtool's, as jobs of their own.

To evaluate all rules over nothing takes 2 s of the 2.2 s that a story of eight ranks takes, so thirty stories
in one storage take little more than one. Tests take part by the mark `beside_others`: when the first of a
module asks, all of them are called to learn what they ask, and what promtool says of all counts for each.
Where it complains, they are played alone after all, so that each failure is about one story.

The long form, of `make verify`, plays every story alone.
"""

from __future__ import annotations

import contextlib
import contextvars
import fcntl
import functools
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import promql_parser
import pytest

from rules.promtool import Document, complaints

MOST_SERIES: Final = 2500
"""In one storage: a query of promtool's may touch 10,000 samples, and rules look back over minutes."""
TOO_MANY: Final = "would load too many samples"
OWNERS: Final = ("training_job", "model")
"""Labels whose values are a story's own: rules look at one job at a time, or compare runs of one model."""

Test = dict[str, Any]
"""One of a document's `tests`: a storage with its series, and what is asked of it."""


@dataclass(frozen=True)
class Story:
    """One storage of a document, in which every series is a training job's."""

    rules: str
    """Everything but the storage, as JSON: those with equal rules may share one."""
    test: str

    @property
    def content(self) -> Test:
        found: Test = json.loads(self.test)
        return found


def stories_of(document: Document) -> list[Story] | None:
    """None where a part of it can only be played alone."""
    rules = {key: value for key, value in document.items() if key != "tests"}
    stories = []
    for test in document["tests"]:
        if set(test) - {"name", "interval", "input_series", "promql_expr_test"}:
            return None  # promtool lists all alerts of a name, whosever they are
        if not all(f'{OWNERS[0]}="' in one["series"] for one in test["input_series"]):
            return None
        interval = {"interval": test["interval"]}
        stories.append(Story(json.dumps(rules | interval, sort_keys=True), json.dumps(test, sort_keys=True)))
    return stories


def together(stories: Sequence[Story]) -> Document:
    """One storage for all: job `a` of the fifth story is `a/4`, and its questions are about that alone."""
    rules = json.loads(stories[0].rules)
    series: list[Any] = []
    asked: list[Any] = []
    for number, story in enumerate(stories):
        test = story.content
        series += [one | {"series": _renamed(one["series"], number)} for one in test["input_series"]]
        for question in test.get("promql_expr_test", ()):
            samples = [
                one | {"labels": _renamed(one["labels"], number)} for one in question["exp_samples"] or ()
            ]
            asked.append(question | {"expr": _about(question["expr"], number), "exp_samples": samples})
    storage = {"interval": rules.pop("interval"), "input_series": series, "promql_expr_test": asked}
    return rules | {"tests": [storage]}


def _renamed(labels: str, number: int) -> str:
    return re.sub(rf'\b({"|".join(OWNERS)})="([^"]*)"', rf'\1="\2/{number}"', labels)


@functools.lru_cache(4096)
def _about(expression: str, number: int) -> str:
    """The expression about what is of the story or of nobody: as the story alone would meet it."""

    def narrow(node: promql_parser.Expr) -> promql_parser.Expr | None:
        if not isinstance(node, promql_parser.VectorSelector):
            return None
        matchers = list(node.matchers.matchers)
        for one in matchers:
            if one.name in OWNERS:
                regex = one.op in (promql_parser.MatchOp.Re, promql_parser.MatchOp.NotRe)
                one.value = f"(?:{one.value})/{number}" if regex else f"{one.value}/{number}"
        ours = (promql_parser.Matcher(promql_parser.MatchOp.Re, name, f"|.+/{number}") for name in OWNERS)
        node.matchers = promql_parser.Matchers([*matchers, *ours])
        return promql_parser.parse(str(node))

    return promql_parser.transform(promql_parser.parse(expression), post_visit=narrow).prettify()


# What is played when


@dataclass
class Module:
    """The stories of one test module: collected once, played in storages of bounded size when asked for."""

    verdicts: Path
    """Folder of what promtool said, which all processes of a test run share."""
    batches: dict[Story, tuple[Story, ...]] = field(default_factory=dict)

    def collect(self, stories: Sequence[Story]) -> None:
        """Lay out the batches: each of one kind of rules, in the order of the tests."""
        kinds: dict[str, list[Story]] = {}
        for story in dict.fromkeys(stories):
            kinds.setdefault(story.rules, []).append(story)
        for kind in kinds.values():
            self._lay(kind)

    def _lay(self, stories: Sequence[Story]) -> None:
        batch: list[Story] = []
        held = 0
        for story in stories:
            size = len(story.content["input_series"])
            if batch and held + size > MOST_SERIES:
                self.batches |= dict.fromkeys(batch, tuple(batch))
                batch, held = [], 0
            batch.append(story)
            held += size
        self.batches |= dict.fromkeys(batch, tuple(batch))

    def complaints(self, story: Story) -> str | None:
        """What promtool says of the batch of a story; None where the story is in none that can be played."""
        while (batch := self.batches.get(story, ())) and len(batch) > 1:
            said = self._played(batch)
            if TOO_MANY not in said:
                return said
            for half in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):
                self.batches |= dict.fromkeys(half, half)
        return None

    def _played(self, batch: Sequence[Story]) -> str:
        """Once for all processes: another that asks for it meanwhile waits."""
        document = together(batch)
        name = hashlib.sha256(json.dumps(document).encode()).hexdigest()
        self.verdicts.mkdir(exist_ok=True)
        with (self.verdicts / name).open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            if known := file.read():
                said: str = json.loads(known)
                return said
            said = complaints(document)
            file.write(json.dumps(said))
            return said


_module: contextvars.ContextVar[Module | None] = contextvars.ContextVar("module", default=None)
"""Whose test runs."""
_collected: contextvars.ContextVar[list[Story] | None] = contextvars.ContextVar("collected", default=None)
"""Where a test's stories go while it only asks."""


def play(document: Document, beside: bool = True) -> None:
    """Raise AssertionError with promtool's words where a rule says something else.

    `beside` is False where as many jobs are in one storage as promtool bears.
    """
    stories = stories_of(document) if beside else None
    if (collected := _collected.get()) is not None:
        collected += stories or ()
        return
    module = _module.get()
    said = [module.complaints(story) for story in stories] if module and stories else [None]
    if all(one == "" for one in said):
        return
    complaint = complaints(document)
    assert not complaint, complaint
    for story, one in zip(stories or (), said, strict=False):
        if module and one:
            number = module.batches[story].index(story)
            assert f"/{number}" not in one, f"alone it goes well; as job /{number} beside others:\n{one}"


@contextlib.contextmanager
def played(item: pytest.Function, modules: dict[Any, Module], folder: Path) -> Iterator[None]:
    """While a test runs, its documents are played with those of the other marked tests of its module."""
    if item.module not in modules:
        modules[item.module] = Module(folder / "promtool")
        marked = (one for one in item.session.items if one.get_closest_marker("beside_others"))
        tests = [one for one in marked if isinstance(one, pytest.Function) and one.module is item.module]
        modules[item.module].collect(list(_stories_of_tests(tests, folder)))
    token = _module.set(modules[item.module])
    try:
        yield
    finally:
        _module.reset(token)


def _stories_of_tests(tests: Sequence[pytest.Function], folder: Path) -> Iterator[Story]:
    """What they ask, without an answer. A test that fails before it asks does so again when it runs."""
    for test in tests:
        given = dict(test.callspec.params) if hasattr(test, "callspec") else {}
        stories: list[Story] = []
        token = _collected.set(stories)
        try:
            with contextlib.suppress(Exception):
                test.obj(**{name: given.get(name, folder) for name in test._fixtureinfo.argnames})
        finally:
            _collected.reset(token)
        yield from stories
