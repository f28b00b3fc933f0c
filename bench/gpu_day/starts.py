"""Small trainings, each started in another way: `python -m bench.gpu_day.starts NAME`."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Any

from bench.gpu_day.device import Device, device

STEPS = 20


def train(on: Device, steps: int = STEPS, micro_batches: int = 1) -> None:
    """A loader, a model and an optimizer; `micro_batches` backward passes a step."""
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    model.to(on.torch_device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.utils.data.TensorDataset(torch.randn(steps * micro_batches, 64))
    for index, (batch,) in enumerate(torch.utils.data.DataLoader(data, batch_size=1)):
        model(batch.to(on.torch_device)).square().mean().backward()
        if (index + 1) % micro_batches == 0:
            optimizer.step()
            optimizer.zero_grad()
    on.synchronize()


def plain() -> None:
    on = device()
    with on.on():
        train(on)


def micro_batches() -> None:
    on = device()
    with on.on():
        train(on, steps=int(sys.argv[2]), micro_batches=int(sys.argv[3]))


def profiled() -> None:
    """The same, as torch.profiler sees it: prints the nanoseconds of a step in which kernels run."""
    steps, micro = int(sys.argv[2]), int(sys.argv[3])
    on = device()
    with on.on():
        train(on, steps=2, micro_batches=micro)  # what is loaded and compiled at first
        with on.profiled() as seen:
            train(on, steps=steps, micro_batches=micro)
    copies = ("Memcpy", "Memset")
    microseconds = sum(sum(took) for name, took in seen.items() if not name.startswith(copies))
    print(round(1000 * microseconds / steps))


def _child(_: int) -> None:
    plain()


def spawn() -> None:
    import torch

    torch.multiprocessing.spawn(_child, nprocs=2)


def transformers() -> None:
    """Its Trainer on a model of two small layers with random weights: nothing is downloaded."""
    import tempfile

    import torch

    hf: Any = importlib.import_module("transformers")  # not of ours, so not typed
    config = hf.BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    model = hf.BertForSequenceClassification(config)
    rows = [
        {"input_ids": torch.randint(0, 64, (16,)), "labels": torch.tensor(index % 2)} for index in range(80)
    ]
    on = device()
    with on.on(), tempfile.TemporaryDirectory() as folder:
        wanted = hf.TrainingArguments(
            folder, max_steps=STEPS, report_to=[], save_strategy="no", use_cpu=on.torch_device == "cpu"
        )
        hf.Trainer(model=model, args=wanted, train_dataset=rows).train()
        on.synchronize()


def lightning() -> None:
    import torch

    pl: Any = importlib.import_module("lightning")

    class Module(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(64, 8)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.layer(batch[0]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(80, 64)), batch_size=4)
    on = device()
    with on.on():
        accelerator = "gpu" if on.torch_device == "cuda" else "cpu"
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        pl.Trainer(accelerator=accelerator, devices=1, max_steps=STEPS, **quiet).fit(Module(), data)
        on.synchronize()


def ends() -> None:
    """Use the device for a moment, then end in the way that is asked for."""
    on = device()
    with on.on():
        for _ in range(50):
            on.fill(1 << 10)
            on.spin(0.1)
        if sys.argv[2] == "busy":  # what is in flight when the process ends
            on.spin(200.0)
        else:
            on.synchronize()
    match sys.argv[2]:
        case "exit7":
            sys.exit(7)
        case "raise":
            raise RuntimeError("as a training script fails")
        case "terminate":
            os.kill(os.getpid(), signal.SIGTERM)
        case "abrupt":
            os._exit(5)


STARTS = {
    "rank": plain,
    "plain": plain,
    "spawn": spawn,
    "transformers": transformers,
    "lightning": lightning,
    "micro_batches": micro_batches,
    "profiled": profiled,
    "ends": ends,
}

if __name__ == "__main__":
    STARTS[sys.argv[1]]()
