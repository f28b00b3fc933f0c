"""What a demo found, in a few lines for a person."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from argus_simulator.demo.story import Outcome, slow_kernels
from argus_simulator.demo.training import Training
from argus_simulator.demo.truth import Accusation, Truth
from argus_simulator.demo.verdict import accusation
from argus_simulator.stack import Stack

_KERNELS_SHOWN = 2


def lines(outcome: Outcome, stack: Stack, training: Training) -> Iterator[str]:
    """The result, the truth, and where to look further."""
    expected = training.truth.expected
    yield ""
    if outcome.page is None:
        yield f"Not found: no page named rank {expected.rank}."
    else:
        yield f"Found: rank {expected.rank} is slow in phase {training.truth.phase}."
        yield f"  who mends it  team {expected.team}, paged by {expected.alert} on {outcome.page.path}"
        yield f"  how slow      {_how_slow(stack, training.truth)}"
        yield f"  how fast      {_how_fast(outcome, training)}"
        yield from _kernels(slow_kernels(stack, training.truth))
    wrong = {*outcome.early, *outcome.verdict.found} - {expected}
    yield from _wrong(wrong, stack, training) if wrong else ("  nobody else was accused",)
    yield f"Truth: {training.truth_text}."
    yield ""
    yield f"Prometheus    {stack.prometheus.url}/alerts"
    yield f"Alertmanager  {stack.alertmanager.url}"
    yield from _trace(stack, expected)
    yield f"exporter      {stack.exporter.url}/metrics"


def _kernels(slow: dict[str, float]) -> Iterator[str]:
    largest = sorted(slow.items(), key=lambda one: -one[1])[:_KERNELS_SHOWN]
    if largest:
        shifts = ", ".join(f"{kernel} {shift:+.0%}" for kernel, shift in largest)
        yield f"  its kernels   {shifts} beside those of the other ranks"


def _trace(stack: Stack, made: Accusation) -> Iterator[str]:
    """Where the timeline of the accused rank is, once the worker has been promised one."""
    if stack.l3_worker is not None:
        for labels, _ in stack.query(f'argus_l3_trace_info{{rank="{made.rank}"}}'):
            yield f"trace         {stack.l3_worker.url}/traces/{labels['trace_key']}?ui=1"


def _how_slow(stack: Stack, truth: Truth) -> str:
    """From the recorded rules, as a dashboard would show it."""
    rank = f'rank="{truth.rank}"'
    ratio = stack.query(
        f'max(rank:argus_phase_duration_seconds:median_ratio{{{rank}, phase="{truth.phase}"}})'
    )
    lost = stack.query(f"max(rank:argus_finding:lost_ratio{{{rank}}})")
    parts = [f"{value:.2f} times the median of its group" for _, value in ratio]
    parts += [f"costs the job {value:.0%} of its time" for _, value in lost]
    return "; ".join(parts) or "no longer known"


def _how_fast(outcome: Outcome, training: Training) -> str:
    onset = training.onset() or 0.0
    return ", ".join(
        f"{severity} delivered {notification.received - onset:.1f} s "
        f"({training.steps_since_onset(notification.received)} steps) after the fault began"
        for severity, notification in (("info", outcome.info), ("page", outcome.page))
        if notification is not None
    )


def _wrong(wrong: Collection[Accusation], stack: Stack, training: Training) -> Iterator[str]:
    onset = training.onset() or 0.0
    for made in sorted(wrong, key=str):
        who = " ".join(part for part in (made.alert, made.rank and f"rank {made.rank}", made.cause) if part)
        delivered = ", ".join(
            f"{one.labels.get('severity')} {one.status} at {one.received - onset:+.1f} s"
            for one in stack.notifications()
            if accusation(one) == made
        )
        yield f"  accused wrongly: {who} ({delivered or 'not delivered'})"
