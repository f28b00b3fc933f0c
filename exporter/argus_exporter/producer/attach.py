"""Attaches ARGUS to a training process, once torch has been imported."""

from __future__ import annotations

import atexit
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from argus_core.link import Link, default_socket_path
from argus_exporter import producer
from argus_exporter.producer import identity, settings, spans, stack_sampler
from argus_exporter.producer.hook import Hook, Observer
from argus_exporter.producer.stopwatch import Stopwatch


def attach(torch: Any) -> Observer | None:
    """Hook the imported torch and report for this rank. None where ARGUS is switched off or attached already.

    Raises:
        NoRank: the environment names no rank.
    """
    config, warnings = settings.read(os.environ)
    if config.disable or config.disable_phases or producer._observer is not None:
        return None
    place = identity.place(os.environ)
    speaks = place.local_rank <= 0  # what all ranks of a host would say alike is said by one
    try:
        parallel = identity.layout(config.parallel, place.world_size)
    except ValueError as error:
        warnings.append(f"{error}; going on without it")
        parallel = identity.Layout()

    socket = Path(config.socket) if config.socket else default_socket_path()
    job = identity.training_job(config.job, os.environ, sys.argv)
    link = Link(socket, lambda: identity.hello(place, job, parallel, _gpu_uuid(torch)))
    begin_stacks = stack_sampler.prepare(
        config.stacks, config.ptracer, socket, lambda: identity.hello(place, job, parallel)
    )
    recorder = spans.Recorder(
        link,
        warmup_iterations=config.warmup_iterations,
        flush_ms=config.flush_milliseconds,
        announce=functools.partial(_training_begins, begin_stacks),
    )
    observer = Observer(
        recorder,
        Stopwatch(recorder),
        use_events=functools.partial(_use_events, torch, config),
        coordinates=parallel.coordinates,
        world_size=place.world_size,
    )
    hooks = attach_hooks(torch, observer, leave_out=config.disable_hooks)
    os.register_at_fork(after_in_child=observer.forked)
    last_exit = _watch_exit()
    atexit.register(lambda: observer.close(spans.exit_status(last_exit())))
    producer._observer = observer

    if speaks:
        for warning in warnings:
            recorder.say(warning)
    if config.debug:
        names = ", ".join(hook.name for hook in hooks)
        recorder.say(
            f"attached rank={place.rank} job={job} launcher={place.launcher} socket={socket} hooks={names}"
        )
    return observer


def attach_hooks(torch: Any, observer: Observer, leave_out: tuple[str, ...] = ()) -> list[Hook]:
    """Put every hook in place; one that does not fit the installed torch is reported and left out."""
    from argus_exporter.producer.torch_hooks import ALL

    hooks = []
    for type_ in ALL:
        if type_.name in leave_out:
            continue
        hook = type_(observer)
        try:
            hook.attach(torch)
        except Exception as error:
            hook.detach()
            observer.recorder.degraded(f"hook_{hook.name}")
            observer.recorder.say(
                f"hook {hook.name} does not fit torch {torch.__version__}, left out: {error!r}"
            )
        else:
            hooks.append(hook)
    return hooks


def _use_events(torch: Any, config: settings.Settings, stopwatch: Stopwatch) -> None:
    if config.disable_cuda_events or not torch.cuda.is_initialized():
        return
    stopwatch.use_events(
        functools.partial(torch.cuda.Event, enable_timing=True),
        config.event_pool,
        torch.cuda.is_current_stream_capturing,
    )


def _gpu_uuid(torch: Any) -> str:
    """UUID of the GPU in use; empty without one. Never the first to touch CUDA."""
    try:
        if not torch.cuda.is_initialized():
            return ""
        return f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
    except Exception:
        return ""


def _training_begins(begin_stacks: Callable[[], None]) -> None:
    """Before the first record is sent, on the thread that trains."""
    _mark_environment()
    begin_stacks()


def _mark_environment() -> None:
    """Python processes that this rank starts inherit its RANK: they must not report for it."""
    os.environ["ARGUS_PRODUCER_PID"] = str(os.getpid())


def _watch_exit() -> Callable[[], object]:
    """Note the argument of `sys.exit`: nothing else tells an exit status to atexit functions."""
    original = sys.exit
    last: object = None

    @functools.wraps(original)
    def exit_(status: Any = None, /) -> Any:
        nonlocal last
        last = status
        original(status)

    sys.exit = exit_
    return lambda: last
