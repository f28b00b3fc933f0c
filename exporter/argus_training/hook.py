"""What all hooks share: a failure of ours is contained and counted; after a few the hook takes itself out."""

from __future__ import annotations

import abc
import signal
import traceback
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final

from argus_core import wire
from argus_training.identity import Layout
from argus_training.imports import Callback, ImportWatch
from argus_training.iterations import IterationDetector
from argus_training.recorder import Recorder
from argus_training.spans import now
from argus_training.step_progress import StepProgress
from argus_training.stopwatch import Stopwatch
from argus_training.waits import PhaseWaits

FAILURES_LIMIT: Final = 3
_PERIOD_NS: Final = 1_000_000_000
_BY_BACKWARD: Final = "iterations_by_backward"


class Observer:
    """What hooks report to, and what they learn from one another.

    Args:
        recorder: takes spans and iterations.
        stopwatch: times work that may be on a GPU.
        use_events: called with the stopwatch once a model on a GPU is seen.
        layout: where the ranks of the job stand, as far as is known.
        world_size: how many they are; below 1: not known.
        traced: ARGUS_TRACED_PYTHON_API.
    """

    def __init__(
        self,
        recorder: Recorder,
        stopwatch: Stopwatch,
        *,
        use_events: Callable[[Stopwatch], None] = lambda _: None,
        layout: Callable[[], Layout] = Layout,
        world_size: Callable[[], int] = lambda: 1,
        traced: str = "",
    ) -> None:
        self.recorder: Recorder = recorder
        self.stopwatch = stopwatch
        self.layout = layout
        self.world_size = world_size
        self.traced = traced
        self.imports = ImportWatch()
        self.progress = StepProgress()
        self.iterations = IterationDetector(recorder.iteration, self.progress)
        self.on_trained: list[Callable[[Callable[[Any], bool]], None]] = []
        """Given what tells whether a parameter is trained: at a new optimizer, or where none steps."""
        self.on_optimizer_step: list[Callable[[], None]] = []
        self.stepped = 0  # id of the optimizer that they are called for
        self.periodic: list[Callable[[], None]] = []
        """Called after an optimizer's step, once a second at most."""
        self.on_models: list[Callable[[list[Any]], None]] = []
        """Given the outermost modules, where the forward hook has looked for them: at a new optimizer."""
        self.on_reducer: list[Callable[[Any], None]] = []
        self.on_root: list[Callable[[Any], None]] = []
        self.on_mesh: list[Callable[[tuple[str, ...], tuple[int, ...]], None]] = []
        self.on_groups: list[Callable[[tuple[str, ...], tuple[int, ...]], None]] = []
        self.on_topology: list[Callable[[], None]] = []
        self.gradients_sharded = False
        self.steps_seen = False
        """An optimizer stepped, or the user reported something: this process trains."""
        self.step_begins: Callable[[Any, Any], None] = lambda _stepper, _optimizer: None
        """`stepper` begins to step `optimizer`; set by the optimizer hook."""
        self.step_ends: Callable[[Any], None] = lambda _stepper: None
        self.evaluating = False
        """Trained modules run without gradients: an evaluation, or a rollout."""
        self._meanwhile = wire.Activity.EVALUATION
        self.never_steady = False
        """Steps are within the backward, a hook has failed, or all is over: hooks look at `alive`."""
        self.splits_by_loss = False
        """The end of the backward is found anew in each, from its loss."""
        self._period_ends = 0
        self._use_events = use_events
        self.hooks: list[Hook] = []
        self.user_phases: set[str] = set()
        """Names of the user's own spans."""
        recorder.outbox.waits = PhaseWaits(self).of
        self.reducers: list[weakref.ref[Any]] = []  # DDP and FSDP, outermost
        self.compiles_model: bool = False
        """A graph of a compiler's may hold collectives of the model's."""
        self.compiles_dp: bool = False
        """One does, of data-parallel ranks."""
        self._roots: weakref.WeakSet[Any] = weakref.WeakSet()
        self.root_kinds: set[str] = set()
        """Names of the classes of all outermost modules, and what a framework says of its own (`zero3`)."""
        self.public = PublicFunctions(self)

    def _iteration_on_gpu_ended(self, start_ns: int, end_ns: int) -> None:
        self.stopwatch.step_ended()
        self.recorder.iteration(start_ns, end_ns)

    def settle(self) -> None:
        """After an optimizer's step: whether all goes as usual, so that hooks may take the short way."""
        iterations = self.iterations
        self.progress.steady = not (
            self.stopwatch.on_events
            or iterations.learning
            or iterations.manual
            or self.evaluating
            or self.never_steady
            or self.splits_by_loss
            or self.on_optimizer_step
            or not self.recorder.keeps_up
        )

    def look(self, now_ns: int) -> None:
        """Some times a second, after an optimizer's step: what is not worth a look in each."""
        self.recorder.outbox.look()
        self.settle()
        if now_ns >= self._period_ends:
            self._period_ends = now_ns + _PERIOD_NS
            for listener in self.periodic.copy():
                listener()

    def new_optimizer(self, optimizer: Any) -> None:
        """An optimizer steps for the first time: its parameters tell where the model is."""
        if self.recorder.host.limit == _BY_BACKWARD:
            self.recorder.host.limited("")
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._time_on_gpu(parameters)
        # Weakly: who looks for them later keeps no model alive.
        trained = {id(parameter): weakref.ref(parameter) for parameter in parameters}
        self._trained(lambda parameter: id(parameter) in trained and trained[id(parameter)]() is parameter)

    def backward_ended(self) -> None:
        """As long as no optimizer has stepped: after many backwards gradients tell where the model is."""
        end = now()
        if self.iterations.backward_ended(end):
            self._trained(lambda parameter: parameter.grad is not None)
            self._time_on_gpu(parameter for root in self._roots for parameter in root.parameters())
            self.recorder.host.limited(_BY_BACKWARD)
            self.recorder.host.say(
                "no optimizer of torch's steps: an iteration is from one training forward to the next, "
                "and an update has no phase"
            )
        if self.iterations.by_backward:
            self.look(end)

    def _time_on_gpu(self, parameters: Iterable[Any]) -> None:
        """If the model is on one."""
        if not self.stopwatch.on_events and any(parameter.is_cuda for parameter in parameters):
            self._use_events(self.stopwatch)
            self.iterations.ended = self._iteration_on_gpu_ended

    def _trained(self, is_trained: Callable[[Any], bool]) -> None:
        """The parameters that are trained are known."""
        self.steps_seen = True
        self.progress.steady = False
        for listener in self.on_trained:
            listener(is_trained)

    def watch(self, module: Any) -> None:
        """A framework says that this module is the one that is trained."""
        for listener in self.on_root:
            listener(module)

    def note_mesh(self, names: tuple[str, ...], shape: tuple[int, ...]) -> None:
        """A device mesh with named dimensions was made."""
        for listener in self.on_mesh:
            listener(names, shape)

    def note_groups(self, names: tuple[str, ...], shape: tuple[int, ...]) -> None:
        """Described process groups are the lines of a grid with these dimensions."""
        for listener in self.on_groups:
            listener(names, shape)

    def topology_changed(self) -> None:
        """A framework has made its parallel groups."""
        for listener in self.on_topology:
            listener()

    def evaluates(self) -> None:
        """What is trained is evaluated: micro-batches that came before are left over, of no iteration."""
        self.iterations.abandoned()
        self._trains_not(wire.Activity.EVALUATION)
        self.iterations.paused()

    def generates(self, module: Any) -> None:
        """A module generates; where it is trained, that is a rollout, but within an iteration part of it."""
        if self.iterations.trains:
            return
        if any(module is part for root in self._roots for part in root.modules()):
            self._trains_not(wire.Activity.ROLLOUT)
            self.iterations.paused()

    def _trains_not(self, activity: wire.Activity) -> None:
        """But for this, until `trains`."""
        if not self.evaluating:
            self.evaluating, self._meanwhile = True, activity
            self.progress.steady = False
            self.recorder.enter(activity)
        elif self.recorder.training:
            self.recorder.outbox.flush_if_due()

    def trains(self) -> None:
        """Training goes on after an evaluation: a forward with gradients, or an optimizer's step."""
        self.evaluating = False
        self.recorder.leave(self._meanwhile)

    def note_root(self, module: Any) -> None:
        """An outermost module that is trained."""
        self.compiles_model |= _is_compiled(module)
        while "_orig_mod" in module._modules:  # torch.compile has wrapped it
            module = module._modules["_orig_mod"]
        self._roots.add(module)
        kinds = {kind.__name__ for kind in type(module).__mro__}
        self.root_kinds |= kinds
        sharded = bool(kinds & {"FullyShardedDataParallel", "FSDPModule"})
        # torch's: Megatron has one of the same name, whose backward waits for nobody.
        if sharded or any(
            kind.__name__ == "DistributedDataParallel" and kind.__module__.startswith("torch.")
            for kind in type(module).__mro__
        ):
            self.gradients_sharded = sharded
            self.reducers.append(weakref.ref(module, self.reducers.remove))
            for listener in self.on_reducer:
                listener(module)

    def compiled(self) -> None:
        """Something was: the model, a part of it, or a step that calls it; or a function that it calls."""
        backward = self.stopwatch.task("backward", wire.Kind.COMPUTE).slot
        self.compiles_model = (
            self.compiles_model
            or not (self.progress.forwarding or self.recorder.words[backward])
            or any(_is_compiled(module) for root in self._roots for module in root.modules())
        )

    def reduces_gradients(self) -> bool:
        """Whether the next backward ends with a wait for peers; not within DDP's `no_sync`."""
        for reducer in self.reducers:
            module = reducer()
            # In the instance's own dict: a module's getattr is slow for what is not there (FSDP).
            if module is not None and module.__dict__.get("require_backward_grad_sync", True):
                return True
        return False

    def unsettle(self) -> None:
        """From here on no hook takes the short way."""
        self.never_steady = True
        self.progress.steady = False

    def close(self, exit_status: int | None) -> None:
        """The process ends: what is complete is sent, then BYE. Never raises."""
        if self.recorder.alive:
            try:
                self.iterations.finish()
                self.stopwatch.poll()
            except Exception as error:  # BYE is said whatever the GPU's driver says, and this before it
                self.recorder.host.degraded("close")
                self.recorder.host.say(f"the last spans are lost: {error!r}")
            try:
                self.recorder.close(exit_status)
            except Exception as error:
                self.recorder.host.say(f"no BYE, the rank will count as lost: {error!r}")
            self._silence()

    def forked(self) -> None:
        """In a child of fork: nothing is observed, and the parent's connection is let go."""
        self.recorder.forked()
        self._silence()

    def _silence(self) -> None:
        self.unsettle()
        for hook in self.hooks:
            hook.alive = False


def _is_compiled(module: Any) -> bool:
    """By `torch.compile(module)`, or by `module.compile()`."""
    return "_orig_mod" in module._modules or getattr(module, "_compiled_call_impl", None) is not None


def _of_a_signal(error: Exception) -> bool:
    """Whether a handler of signals has raised it (a time limit, a preemption)."""
    raised_in = {id(frame.f_code) for frame, _ in traceback.walk_tb(error.__traceback__)}
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        handler = getattr(handler, "func", handler)  # functools.partial
        call = getattr(type(handler), "__call__", None)  # noqa: B004  (its code is asked for)
        codes = (getattr(handler, "__code__", None), getattr(call, "__code__", None))
        if any(code is not None and id(code) in raised_in for code in codes):
            return True
    return False


class Hook(abc.ABC):
    """One subject that is hooked. Subclasses implement `attach` and name themselves.

    Every entry from torch or the user's code looks at `alive` first, or at `progress.steady`, which implies
    it, and hands exceptions to `failed`.
    """

    name = ""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        observer.hooks.append(self)
        self.recorder = observer.recorder
        self.alive = True
        """False: every entry of the hook does nothing. A plain attribute: it is read several times a step."""
        self.failures = 0
        self._undo: list[Callable[[], object]] = []

    @abc.abstractmethod
    def attach(self, torch: Any) -> None:
        """Put the hook in place.

        Raises:
            Exception: this torch lacks what the hook needs; the others go on.
        """

    def failed(self, error: Exception) -> None:
        """Count a failure of ours; the last one detaches the hook and says so once.

        Raises:
            Exception: it is none of ours: a signal came, and its handler raises it wherever training stands.
        """
        if _of_a_signal(error):
            raise error
        self.failures += 1
        if self.failures >= FAILURES_LIMIT and self.alive:
            self.detach()
            self.observer.unsettle()
            self.recorder.host.degraded(f"hook_{self.name}")
            self.recorder.host.say(
                f"hook {self.name} detached after {self.failures} failures, training goes on: {error!r}"
            )

    def detach(self) -> None:
        """Take the hook out again."""
        self.alive = False
        for undo in reversed(self._undo):
            try:
                undo()
            except Exception as error:
                self.recorder.host.say(f"hook {self.name} could not be taken out: {error!r}")
        self._undo.clear()

    def replace(self, owner: Any, attribute: str, replacement: Any) -> None:
        """Set `owner.attribute`, and back at detach unless someone else has replaced it since."""
        original = getattr(owner, attribute)
        setattr(owner, attribute, replacement)

        def undo() -> None:
            if getattr(owner, attribute, None) is replacement:
                setattr(owner, attribute, original)

        self._undo.append(undo)

    def when_imported(self, module: str, attach: Callback) -> None:
        """Attach to a module once it is imported; what does not fit is reported and left out."""

        def guarded(imported: Any) -> None:
            try:
                if self.alive:
                    attach(imported)
            except Exception as error:
                self.recorder.host.degraded(f"hook_{self.name}")
                self.recorder.host.say(f"hook {self.name} does not fit {module}, left out: {error!r}")

        self._undo.append(self.observer.imports.when_imported(module, guarded))

    def hide_from_dynamo(self, entries: Iterable[Callable[..., Any]], *methods: str) -> None:
        """Dynamo does not trace us where a whole step is compiled.

        Args:
            entries: called in every step: skipped, which costs nothing, but not what they call.
            methods: called where it is not as usual: with all that they call, for 0.4 us a call.
        """

        def hide(dynamo: Any) -> None:
            for entry in entries:
                dynamo.decorators.skip(entry)
            for name in methods:
                setattr(self, name, dynamo.disable(getattr(self, name)))

        self.when_imported("torch._dynamo", hide)

    def remove_at_detach(self, handle: Any) -> None:
        """Call `handle.remove()` at detach."""
        self._undo.append(handle.remove)


class PublicFunctions(Hook):
    """`span`, `iteration` and `work`, as far as they may fail: there is nothing to attach to."""

    name = "public"

    def attach(self, torch: Any) -> None:
        """The user's code calls them."""
