"""One file per subject that is hooked in torch. `ALL` is the order in which they are attached."""

from __future__ import annotations

from argus_training.frameworks.deepspeed import DeepSpeedHook
from argus_training.frameworks.generation import GenerationHook
from argus_training.frameworks.lightning import LightningHook
from argus_training.frameworks.megatron import MegatronHook
from argus_training.garbage import GarbageHook
from argus_training.hook import Hook
from argus_training.torch_hooks.backward import BackwardHook
from argus_training.torch_hooks.checkpoint import CheckpointHook
from argus_training.torch_hooks.collectives import CollectivesHook
from argus_training.torch_hooks.compilation import CompilationHook
from argus_training.torch_hooks.dataloader import DataHook
from argus_training.torch_hooks.forward import ForwardHook
from argus_training.torch_hooks.groups import GroupsHook
from argus_training.torch_hooks.layers import LayersHook
from argus_training.torch_hooks.mesh import MeshHook
from argus_training.torch_hooks.optimizer import OptimizerHook
from argus_training.torch_hooks.profiler import ProfilerHook
from argus_training.torch_hooks.traced import TracedHook

# Layers first: where two wrap one function, the step has begun, and the phase, when a layer's turn comes.
ALL: tuple[type[Hook], ...] = (
    LayersHook,
    DataHook,
    ForwardHook,
    BackwardHook,
    OptimizerHook,
    CollectivesHook,
    GarbageHook,
    CompilationHook,
    CheckpointHook,
    TracedHook,
    ProfilerHook,
    MeshHook,
    GroupsHook,
    DeepSpeedHook,
    GenerationHook,
    LightningHook,
    MegatronHook,
)
