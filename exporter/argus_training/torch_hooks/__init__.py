"""One file per subject that is hooked in torch. `ALL` is the order in which they are attached."""

from __future__ import annotations

from argus_training.frameworks.deepspeed import DeepSpeedHook
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
from argus_training.torch_hooks.mesh import MeshHook
from argus_training.torch_hooks.optimizer import OptimizerHook
from argus_training.torch_hooks.profiler import ProfilerHook
from argus_training.torch_hooks.traced import TracedHook

ALL: tuple[type[Hook], ...] = (
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
    LightningHook,
    MegatronHook,
)
