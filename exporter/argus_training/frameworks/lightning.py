"""Lightning: a training step is the user's method, which calls their modules as it likes: phase `forward`.

Patched: `Strategy.training_step`, through which every strategy calls it. Lightning runs it, and the backward,
within the optimizer's step, as its closure: without this the work of a step outside of modules would count as
`optimizer`. Its iterations end with that step, as everywhere.

Patched too: `Trainer.save_checkpoint`: Lightning has torch pickle into memory and writes the file itself.
"""

from __future__ import annotations

from typing import Any, Final

from argus_core import wire
from argus_training.frameworks.timing import timed
from argus_training.hook import Hook
from argus_training.torch_hooks.checkpoint import saving
from argus_training.torch_hooks.input_work import counter

PACKAGES: Final = ("lightning.pytorch", "pytorch_lightning")
"""The same code under two names."""


class LightningHook(Hook):
    name = "lightning"

    def attach(self, torch: Any) -> None:
        count = counter(torch, self.recorder.host.work_totals)

        def attach_strategy(module: Any) -> None:
            class_ = module.Strategy
            step = timed(self, class_.training_step, "forward", wire.Kind.COMPUTE, trains=True, count=count)
            self.replace(class_, "training_step", step)

        def attach_trainer(module: Any) -> None:
            self.replace(module.Trainer, "save_checkpoint", saving(self, module.Trainer.save_checkpoint))

        for package in PACKAGES:
            self.when_imported(f"{package}.strategies.strategy", attach_strategy)
            self.when_imported(f"{package}.trainer.trainer", attach_trainer)
