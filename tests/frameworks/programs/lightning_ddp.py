"""Lightning: ddp of two, which starts the second rank itself; accumulation of 2, validation in between."""

import warnings
from typing import Any

import torch
from own import SGD, STEPS, WIDTH, job, loader, model

warnings.simplefilter("ignore")
import lightning  # noqa: E402

torch.set_num_threads(1)


class Net(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = model()

    def training_step(self, x: torch.Tensor, _: int) -> torch.Tensor:
        with job.timed("forward"):
            self.loss = self.blocks(x).square().mean()
        return self.loss

    def validation_step(self, x: torch.Tensor, _: int) -> None:
        self.blocks(x)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return SGD(self.parameters(), lr=0.1)

    def backward(self, loss: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        with job.timed("backward"):
            super().backward(loss, *args, **kwargs)

    def on_train_batch_end(self, *_: Any) -> None:
        if self.trainer.global_step > len(job.ends_ns):
            job.stepped()


net = Net()
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=2,
    strategy="ddp",
    max_steps=STEPS,
    accumulate_grad_batches=2,
    check_val_every_n_epoch=2,
    num_sanity_val_steps=1,
    limit_val_batches=2,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
job.rank = trainer.global_rank
trainer.fit(net, loader(10), torch.utils.data.DataLoader(torch.randn(16, WIDTH), batch_size=4))
job.finish(net.loss.item())
torch.distributed.destroy_process_group()
