"""HF Trainer: map-style or iterable data, or a compiled model, by the first argument; accumulation of 2.

`find_spec("torch")` first, as `import datasets` does.
"""

import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

assert importlib.util.find_spec("torch")

import torch  # noqa: E402
from own import SGD, STEPS, Rows, collate, job, model  # noqa: E402
from transformers import Trainer, TrainerCallback, TrainingArguments  # noqa: E402

torch.set_num_threads(1)
what = sys.argv[1]


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = model()

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.blocks(x).square().mean()}


class Stream(torch.utils.data.IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        rows = Rows(64)
        for first in range(0, 64, 4):
            yield from rows.__getitems__(list(range(first, first + 4)))


class Steps(TrainerCallback):
    def on_step_end(self, *_: Any, **__: Any) -> None:
        job.stepped()


with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        max_steps=STEPS,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        seed=0,
        remove_unused_columns=False,
        torch_compile=what == "compiled",
        torch_compile_backend="aot_eager" if what == "compiled" else None,
    )
    net = Net()
    optimizer = SGD(net.parameters(), lr=0.1)
    trainer = Trainer(
        net,
        arguments,
        train_dataset=Stream() if what == "iterable" else Rows(44),  # 5 steps an epoch and a half
        data_collator=lambda rows: {"x": collate(rows)},
        optimizers=(optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)),
        callbacks=[Steps()],
    )
    trainer.accelerator.backward = job.within("backward", trainer.accelerator.backward)
    compute_loss = job.within("forward", trainer.compute_loss)
    trainer.compute_loss = compute_loss
    done = trainer.train()
job.finish(done.training_loss)
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
