"""megatron-core's GPTModel and its schedules: tp, pp (1F1B) or ep of 2, by the first argument.

Megatron-Core needs a GPU in a few places of its own, none of which we attach to. `on_cpu` takes their place.
"""

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from own import FETCH_S, SGD, STEPS, Rows, collate, forever, job, work

warnings.simplefilter("ignore")
torch.set_num_threads(1)


def on_cpu() -> None:
    """What Megatron-Core asks of CUDA."""
    torch.cuda.current_device = lambda: torch.device("cpu")
    for name in ("Stream", "Event"):
        setattr(torch.cuda, name, mock.MagicMock())
    torch.cuda.stream = lambda _: contextlib.nullcontext()
    torch.cuda.current_stream = mock.MagicMock()
    torch.cuda.synchronize = lambda *_: None
    for name in ("zeros", "empty", "tensor", "full", "arange", "ones"):
        setattr(torch, name, _elsewhere(getattr(torch, name)))


def _elsewhere(make: Any) -> Any:
    def made(*args: Any, device: Any = None, **kwargs: Any) -> Any:
        return make(*args, device="cpu" if str(device).startswith("cuda") else device, **kwargs)

    return made


class NoRandomness:
    """Of the tracker of the GPU's random states: nothing here draws."""

    @contextlib.contextmanager
    def fork(self, *_: Any) -> Iterator[None]:
        yield


on_cpu()
from megatron.core import parallel_state  # noqa: E402
from megatron.core.distributed import (  # noqa: E402
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.optimizer.clip_grads import get_grad_norm_fp32  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402
from megatron.core.timers import Timers  # noqa: E402
from megatron.core.transformer.mlp import MLP  # noqa: E402
from megatron.core.transformer.moe import moe_utils  # noqa: E402
from megatron.core.transformer.moe.experts import SequentialMLP  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402

moe_utils.te_general_gemm = None  # 0.16 names it where TransformerEngine is absent
for module in [one for name, one in sys.modules.items() if name.startswith("megatron.")]:
    if hasattr(module, "get_cuda_rng_tracker"):
        module.get_cuda_rng_tracker = lambda *_, **__: NoRandomness()

LENGTH, BATCH, VOCABULARY = 8, 2, 32


class SlowMLP(MLP):
    def forward(self, hidden: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return super().forward(work(hidden), *args, **kwargs)


class SlowExperts(SequentialMLP):
    def forward(self, hidden: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return super().forward(work(hidden), *args, **kwargs)


what = sys.argv[1]
MICRO_BATCHES = 4 if what == "pp" else 2
dist.init_process_group("gloo")
sizes = {"tp": "tensor_model", "pp": "pipeline_model", "ep": "expert_model"}
parallel_state.initialize_model_parallel(**{f"{sizes[what]}_parallel_size": 2})
config = TransformerConfig(
    num_layers=2,
    hidden_size=16,
    num_attention_heads=2,
    use_cpu_initialization=True,
    pipeline_dtype=torch.float32,
    tensor_model_parallel_size=2 if what == "tp" else 1,
    pipeline_model_parallel_size=2 if what == "pp" else 1,
    expert_model_parallel_size=2 if what == "ep" else 1,
    num_moe_experts=2 if what == "ep" else None,
    moe_router_topk=1,
    moe_router_pre_softmax=True,
    moe_token_dispatcher_type="allgather",
    batch_p2p_comm=False,
    deallocate_pipeline_outputs=False,
    attention_dropout=0.0,
    hidden_dropout=0.0,
    gradient_accumulation_fusion=False,
    bias_activation_fusion=False,
    bias_dropout_fusion=False,
    apply_rope_fusion=False,
    masked_softmax_fusion=False,
    persist_layer_norm=False,
    cross_entropy_loss_fusion=False,
)
torch.manual_seed(0)
spec = get_gpt_layer_local_spec(num_experts=config.num_moe_experts)
if what == "ep":
    spec.submodules.mlp.submodules.experts.module = SlowExperts
else:
    spec.submodules.mlp.module = SlowMLP
net = GPTModel(
    config,
    spec,
    VOCABULARY,
    LENGTH,
    pre_process=parallel_state.is_pipeline_first_stage(),
    post_process=parallel_state.is_pipeline_last_stage(),
)
net = DistributedDataParallel(config, DistributedDataParallelConfig(overlap_grad_reduce=False), net)
config.timers = Timers(0, "minmax")
config.finalize_model_grads_func = finalize_model_grads
optimizer = SGD(net.parameters(), lr=0.1)
losses: list[float] = []


def loss_of(output: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    loss = output.float().mean()
    losses.append(loss.item())
    return loss, {}


def forward_step(batches: Iterator[torch.Tensor], model: Any) -> tuple[torch.Tensor, Any]:
    tokens = next(batches)
    with job.timed("model"):
        positions = torch.arange(LENGTH).expand_as(tokens)
        mask = torch.ones(1, 1, LENGTH, LENGTH).tril() < 0.5
        output = model(tokens, positions, mask, labels=tokens)
    return output, loss_of


class Tokens(Rows):
    fetch_s = FETCH_S / MICRO_BATCHES

    def __init__(self) -> None:
        super().__init__(160)
        generator = torch.Generator().manual_seed(job.rank if what == "ep" else 0)
        self.rows = torch.randint(VOCABULARY, (160, LENGTH), generator=generator)


batches = forever(torch.utils.data.DataLoader(Tokens(), batch_size=BATCH, collate_fn=collate))
schedule = get_forward_backward_func()
for _ in range(STEPS):
    net.zero_grad_buffer()
    with job.timed("schedule"):
        schedule(
            forward_step_func=forward_step,
            data_iterator=batches,
            model=[net],
            num_microbatches=MICRO_BATCHES,
            seq_length=LENGTH,
            micro_batch_size=BATCH,
            forward_only=False,
        )
    for parameter in net.parameters():
        parameter.grad = parameter.main_grad
    get_grad_norm_fp32([parameter.grad for parameter in net.parameters()])  # over all ranks
    optimizer.step()
    optimizer.zero_grad()
    job.stepped()
job.finish(sum(losses[-MICRO_BATCHES:]))
dist.destroy_process_group()
