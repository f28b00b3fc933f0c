"""Attaches ARGUS to a training process, once torch has been imported."""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import sys
from collections.abc import Callable
from typing import Any, Final

import argus_training
from argus_core import injection, process_environment, settings_file, wire
from argus_core.link import Link, default_socket_path
from argus_core.shared_page import PageWriter
from argus_training import cupti_fallback, identity, injector, settings, stack_sampler
from argus_training.exit_status import ExitWatch, code, main_frame
from argus_training.graph_captures import GraphCaptures
from argus_training.hook import Hook, Observer
from argus_training.kernels_control import KernelsControl
from argus_training.rank_layout import RankLayout
from argus_training.recorder import Recorder
from argus_training.step_marks import StepMarks
from argus_training.stopwatch import Stopwatch


def attach(torch: Any) -> Observer | None:
    """Hook the imported torch and report for this rank. None where that is switched off or done already."""
    socket = default_socket_path()
    file = settings_file.beside(str(socket))
    config, warnings = settings.read(os.environ, file)
    if config.disable or argus_training._observer is not None:
        return None
    unplaced = settings.place(os.environ, file)
    other = config.disable_kernels or config.kernels_fallback
    library = None if other else injector.library_path()
    no_kernels, why = injection.place(os.environ, str(library or ""), process_environment.alone())
    no_nccl, why_no_nccl = "", ""
    if config.nccl:
        plugin = injector.library_path(injection.PROFILER)
        no_nccl, why_no_nccl = injection.place_profiler(
            os.environ, str(plugin or ""), process_environment.alone()
        )
    if config.disable_phases:
        return None
    rank_layout = RankLayout(torch, os.environ, config.parallel, lambda text: _say(text))
    page = _shared_page()
    gpu = _Gpu(torch, lambda text: _say(text))
    nccl_fd = injection.profiler_memory(os.environ) if config.nccl else None
    link = Link(
        socket,
        lambda: _hello(rank_layout, config, gpu, page, shares_nccl=nccl_fd is not None),
        page_fd=page.fd if page is not None else None,
        nccl_fd=nccl_fd,
    )
    facts: list[wire.Record] = [wire.job_facts(config.model, config.backend)] if config.model else []
    if no_kernels and not other:
        warnings = [*warnings, f"no kernels: {why}"]
        facts.append(wire.ChannelState(0, 0, link.name_id(no_kernels), wire.Channel.KERNELS, 0))
    if no_nccl:
        warnings = [*warnings, f"no collectives from NCCL: {why_no_nccl}"]
    begin_stacks = stack_sampler.prepare(
        "off" if config.disable_stacks else config.stacks,
        config.ptracer,
        socket,
        lambda: _hello(rank_layout, config, gpu, None),
    )
    begin_kernels = cupti_fallback.prepare(
        torch,
        config.kernels_fallback and not config.disable_kernels,
        socket,
        lambda: _hello(rank_layout, config, gpu, None),
        lambda: recorder.step,
        config.watchdog_seconds,
    )
    recorder = Recorder(
        link,
        page=page,
        warmup_iterations=config.warmup_iterations,
        flush_ms=config.flush_milliseconds,
        background=True,
        facts=facts,
        announce=functools.partial(
            _training_begins, lambda text: _say(text), gpu.ask, begin_stacks, begin_kernels
        ),
    )
    captures = GraphCaptures(torch.cuda.CUDAGraph)
    observer = Observer(
        recorder,
        Stopwatch(recorder),
        use_events=lambda stopwatch: on_gpu(stopwatch),
        layout=rank_layout.layout,
        world_size=rank_layout.world_size,
        traced=config.traced_python_api,
    )
    recorder.outbox.may_speak = lambda: (
        rank_layout.launched or (observer.steps_seen and rank_layout.place() is not None)
    )
    _follow_topology(observer, rank_layout)
    if not rank_layout.launched:
        _adopt_kernels(torch, observer, rank_layout, config.job, captures)

    def _say(text: str) -> None:
        place = rank_layout.place()
        if place is None or place.local_rank <= 0:  # what all ranks of a host would say alike is said by one
            recorder.host.say(text)

    def on_gpu(stopwatch: Stopwatch) -> None:
        if gpu.ask() and recorder.training:  # a collective was told of before CUDA was in use
            recorder.outbox.introduce_again()
        _use_events(torch, config, captures, stopwatch)

    hooks = attach_hooks(torch, observer, leave_out=config.disable_hooks)
    os.register_at_fork(after_in_child=functools.partial(_forked, torch, observer))
    _watch_exit(observer)
    argus_training._observer = observer
    if hasattr(torch, "compiler"):
        argus_training._compiles = torch.compiler.is_compiling

    rank_layout.layout()  # says what cannot be used
    if unplaced and not (config.disable_kernels or no_kernels):
        warnings.append(unplaced)
    for warning in warnings:
        _say(warning)
    if config.debug:
        place = rank_layout.place()
        names = ", ".join(hook.name for hook in hooks)
        shown = f"rank={place.rank} launcher={place.launcher}" if place is not None else "rank=not yet known"
        recorder.host.say(f"attached {shown} job={_job(config.job)} socket={socket} hooks={names}")
    return observer


def attach_hooks(torch: Any, observer: Observer, leave_out: tuple[str, ...] = ()) -> list[Hook]:
    """Put every hook in place; one that does not fit the installed torch is reported and left out."""
    from argus_training.torch_hooks import ALL
    from argus_training.torch_hooks.compiling import skip_our_code

    observer.public.when_imported("torch._dynamo", skip_our_code)
    hooks = []
    for type_ in ALL:
        if type_.name in leave_out:
            continue
        hook = type_(observer)
        try:
            hook.attach(torch)
        except Exception as error:
            hook.detach()
            observer.recorder.host.degraded(f"hook_{hook.name}")
            observer.recorder.host.say(
                f"hook {hook.name} does not fit torch {torch.__version__}, left out: {error!r}"
            )
        else:
            hooks.append(hook)
    return hooks


def _hello(
    rank_layout: RankLayout,
    config: settings.Settings,
    gpu: _Gpu,
    page: PageWriter | None,
    *,
    shares_nccl: bool = False,
) -> wire.Hello:
    """HELLO as things stand now.

    Raises:
        OSError: this process has no rank, or none yet; the link tries again later.
    """
    place = rank_layout.place()
    if place is None:
        raise OSError("no rank")
    return identity.hello(
        place,
        _job(config.job),
        rank_layout.layout(),
        gpu.uuid,
        node=config.node,
        shares_page=page is not None,
        shares_nccl=shares_nccl,
    )


def _job(named: str) -> str:
    return identity.training_job(named, os.environ, sys.argv)


def _shared_page() -> PageWriter | None:
    """None where no memfd can be made: the channel goes on without."""
    try:
        return PageWriter()
    except (OSError, AttributeError, ValueError):
        return None


def _follow_topology(observer: Observer, rank_layout: RankLayout) -> None:
    """HELLO is said again when Megatron, a mesh or process groups tell a layout after it."""

    def changed() -> None:
        if observer.recorder.training:
            observer.recorder.outbox.introduce_again()

    def new_mesh(names: tuple[str, ...], shape: tuple[int, ...]) -> None:
        if rank_layout.note_mesh(names, shape):
            observer.topology_changed()

    def new_groups(names: tuple[str, ...], shape: tuple[int, ...]) -> None:
        if rank_layout.note_groups(names, shape):
            observer.topology_changed()

    observer.on_mesh.append(new_mesh)
    observer.on_groups.append(new_groups)
    observer.on_topology.append(changed)


def _adopt_kernels(
    torch: Any, observer: Observer, rank_layout: RankLayout, named: str, captures: GraphCaptures
) -> None:
    """Tell libargus_cupti the rank that no variable holds, once this process trains and CUDA has loaded it.

    Not while a graph is captured: what CUPTI does as it comes up might not be allowed there. Nor after one
    with torch before 2.1, which does not bring CUPTI up with CUDA: the graph would hang (pytorch#97199).
    """
    control = KernelsControl()
    late = not torch.__version__.startswith(("1.", "2.0."))

    def adopt() -> None:
        place = rank_layout.place()
        if place is not None and not captures.running and control.loaded():
            observer.periodic.remove(adopt)
            if late or not captures.begun:
                control.adopt(place.rank, place.local_rank, place.world_size, _job(named))

    observer.periodic.append(adopt)


EVENT_POOL: Final = 4096
"""CUDA events in flight at most: six times what a step of 64 micro-batches has; spans beyond are dropped."""


def _use_events(torch: Any, config: settings.Settings, captures: GraphCaptures, stopwatch: Stopwatch) -> None:
    if config.disable_cuda_events or not torch.cuda.is_initialized():
        return
    on_current_stream = torch.cuda.is_current_stream_capturing
    stopwatch.use_events(
        functools.partial(torch.cuda.Event, enable_timing=True),
        EVENT_POOL,
        lambda: captures.running > 0 or on_current_stream(),
        lambda device: int(torch._C._cuda_getCurrentRawStream(device)),
        torch._C._cuda_getDevice,
        _step_marks(config),
        _may_ask(torch),
    )


_RELAXED: Final = 2
"""CU_STREAM_CAPTURE_MODE_RELAXED: what a thread asks in this mode breaks no capture of another thread."""


def _may_ask(torch: Any) -> Callable[[int], bool]:
    """What a thread of ours needs before it asks events: it must use no other GPU, nor break a capture."""
    try:
        exchange = ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):
        return lambda _: False

    def may_ask(device: int) -> bool:
        mode = ctypes.c_int(_RELAXED)
        if exchange(ctypes.byref(mode)):
            return False
        torch._C._cuda_setDevice(device)
        return True

    return may_ask


def _step_marks(config: settings.Settings) -> Callable[[int, int, int], bool] | None:
    """Where kernels are observed spans need a place among them."""
    if config.disable_kernels or not (KernelsControl().loaded() or config.kernels_fallback):
        return None
    try:
        return StepMarks().put
    except (OSError, AttributeError):
        return None


class _Gpu:
    """The GPU in use, once it is known. To the thread that sends it is the first that is visible."""

    def __init__(self, torch: Any, say: Callable[[str], None]) -> None:
        self._torch, self._say = torch, say
        self.uuid = ""

    def ask(self) -> bool:
        """On the thread that trains: whether it is known from now on. Never the first to touch CUDA."""
        cuda = self._torch.cuda
        if self.uuid or not cuda.is_initialized():
            return False
        try:
            properties = cuda.get_device_properties(cuda.current_device())
            known = getattr(properties, "uuid", "")  # older torch has none
        except Exception as error:
            self._say(f"the GPU's UUID is not known: {error}")
            return False
        self.uuid = f"GPU-{known}" if known else ""
        return bool(known)


def _training_begins(say: Callable[[str], None], *begin: Callable[[], object]) -> None:
    """Before the first record is sent, on the thread that trains."""
    # Python processes that this rank starts inherit its RANK: they must not report for it.
    if not process_environment.name_producer():
        say(
            "processes that this rank starts, and that train, report as this rank: "
            f"{process_environment.PRODUCER} cannot be set, as {process_environment.THREADS}"
        )
    for channel in begin:
        channel()


def _forked(torch: Any, observer: Observer) -> None:
    """In a child of fork nothing is observed, until it joins a process group of its own.

    Then it is a rank, as of `mp.start_processes(start_method="fork")`, Lightning's `ddp_fork` or accelerate's
    `notebook_launcher`, whose parent attached and never trained. A loader's worker joins none.
    """
    rank_may_follow = argus_training._observer is observer and not observer.steps_seen
    observer.forked()
    if not rank_may_follow or not torch.distributed.is_available():
        return
    modules = (torch.distributed, torch.distributed.distributed_c10d)
    original = torch.distributed.init_process_group

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        try:
            if argus_training._observer is observer:
                for module in modules:
                    if module.init_process_group is init_process_group:
                        module.init_process_group = original
                for hook in observer.hooks:
                    hook.detach()
                argus_training._observer = None
                attach(torch)
        except Exception as error:
            sys.stderr.write(f"argus: not attached, the training goes on without it: {error!r}\n")
        return result

    for module in modules:
        module.init_process_group = init_process_group


def _watch_exit(observer: Observer) -> None:
    """Say BYE with the exit status, however the interpreter ends. A signal that kills it leaves no BYE."""
    watch = ExitWatch(main_frame())
    sys.exit = watch.wrap(sys.exit)
    atexit.register(lambda: observer.close(watch.status()))
    os_exit = os._exit

    @functools.wraps(os_exit)
    def leave_at_once(status: int) -> Any:
        observer.close(code(status))
        os_exit(status)

    os._exit = leave_at_once
