"""Real training programs: every iteration is counted, phases are what the program's own timers say, and the
slow rank is the one with the long compute. The programs are in `programs/`, their packages in `packages.txt`.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from tools.generate_frameworks import FIGURES as RECORDED

from argus_core import wire

from .measured import (
    PACKAGES,
    Forking,
    Job,
    Rank,
    Window,
    as_command,
    by_deepspeed,
    by_environment,
    by_itself,
    by_torchrun,
    forked,
    run,
    shortest,
)
from .signals import signals

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.e2e]

DATA = {"data": ("data",)}
OPTIMIZER = {"optimizer": ("optimizer",)}
FORWARD = {"forward": ("forward",)}
BACKWARD = {"backward": ("backward", "dp-allreduce", "dp-reduce-scatter")}
LOOP = DATA | FORWARD | BACKWARD | OPTIMIZER
ITS_LOOP = {"fetch": ("data",)} | FORWARD | BACKWARD | OPTIMIZER
"""Where the framework's loop asks for a batch."""
DEEPSPEED = DATA | FORWARD | BACKWARD | {"step": ("optimizer",)}
CHUNKS = "stage_forward"
TOLERANCE = 0.03
BY_TORCH = forked("torch._dynamo")
COMPILING = forked("torch._dynamo", "torch._inductor.compile_fx")
BY_TRANSFORMERS = forked("transformers.trainer", "torch._dynamo")
BY_TRANSFORMERS_COMPILING = forked("transformers.trainer", "torch._dynamo", "torch._inductor.compile_fx")
MEGATRON = DATA | OPTIMIZER | {"schedule": ("forward", "backward", "dp-", "pp-", "tp-")}


class Program(NamedTuple):
    """One program, and what is known of it."""

    name: str
    what: str
    command: tuple[str, ...]
    timers: dict[str, tuple[str, ...]] = LOOP
    """By the program's timer: how the phases begin that together are what it times."""
    launch: Callable[..., list[str]] = BY_TORCH
    waits: str = ""
    """Phases of compute of which ARGUS says that a wait may remain in them, in order."""
    layers: str = "block"
    """Kinds of layers that are sampled."""
    units: str = "samples"


PROGRAMS = (
    Program(
        "DDP",
        "accumulation, no_sync, GradScaler, checkpointing, BatchNorm",
        ("ddp.py",),
        launch=by_environment,
    ),
    Program("DDP, spawned", "ranks by `mp.spawn`", ("spawned.py",), launch=by_itself),
    Program("FSDP1", "each block a unit", ("fsdp1.py",), waits="backward forward"),
    Program("FSDP2", "by torchrun", ("fsdp2.py",), launch=by_torchrun, waits="backward"),
    Program("DTensor", "tp of 2", ("tensor_parallel.py",), launch=by_environment, waits="backward"),
    Program(
        "pipelining",
        "1F1B, two stages",
        ("pipeline.py",),
        DATA | FORWARD | OPTIMIZER,
        launch=by_environment,
        layers="block stage_backward stage_forward",
    ),
    Program("compiled module", "within DDP", ("compiled.py", "module"), launch=COMPILING, layers=""),
    Program("compiled blocks", "`block.compile()` within DDP", ("compiled.py", "block"), launch=COMPILING),
    Program(
        "compiled DDP", "`torch.compile(DDP(model))`", ("compiled.py", "ddp"), launch=COMPILING, layers=""
    ),
    Program("compiled step", "the whole step", ("compiled.py", "step"), DATA | OPTIMIZER, launch=COMPILING),
    Program(
        "transformers",
        "Trainer, accumulation",
        ("transformers_trainer.py", "map"),
        ITS_LOOP,
        launch=BY_TRANSFORMERS,
    ),
    Program(
        "transformers, iterable",
        "batches dispatched",
        ("transformers_trainer.py", "iterable"),
        ITS_LOOP,
        launch=BY_TRANSFORMERS,
    ),
    Program(
        "transformers, compiled",
        "`torch_compile=True`",
        ("transformers_trainer.py", "compiled"),
        ITS_LOOP,
        launch=BY_TRANSFORMERS_COMPILING,
        layers="",
    ),
    Program("accelerate", "by torchrun, short epochs", ("accelerate_loop.py",), ITS_LOOP, launch=by_torchrun),
    Program("Lightning", "ddp, accumulation, validation", ("lightning_ddp.py",), ITS_LOOP, launch=by_itself),
    Program(
        "DeepSpeed, ZeRO 1",
        "accumulation",
        ("deepspeed_zero.py", "1"),
        DEEPSPEED,
        launch=by_environment,
        waits="backward optimizer",
    ),
    Program(
        "DeepSpeed, ZeRO 2",
        "by its launcher",
        ("deepspeed_zero.py", "2"),
        DEEPSPEED,
        launch=by_deepspeed,
        waits="backward optimizer",
    ),
    Program(
        "DeepSpeed, ZeRO 3",
        "accumulation",
        ("deepspeed_zero.py", "3"),
        DEEPSPEED,
        launch=by_environment,
        waits="backward forward optimizer",
        layers="",
    ),
    Program(
        "DeepSpeed, pp",
        "two stages of a PipelineModule, its schedule",
        ("deepspeed_pipeline.py",),
        DATA | FORWARD | OPTIMIZER,
        launch=by_environment,
        waits="backward optimizer",
        layers="stage_backward stage_forward",
        units="",
    ),
    Program(
        "Megatron, tp",
        "GPTModel, tp of 2",
        ("megatron_gpt.py", "tp"),
        MEGATRON,
        launch=by_environment,
        layers=f"core_attention mlp {CHUNKS}",
        units="samples tokens",
    ),
    Program(
        "Megatron, pp",
        "two stages, 1F1B",
        ("megatron_gpt.py", "pp"),
        MEGATRON,
        launch=by_environment,
        layers=f"core_attention mlp {CHUNKS}",
        units="samples tokens",
    ),
    Program(
        "Megatron, ep",
        "two experts, ep of 2",
        ("megatron_gpt.py", "ep"),
        MEGATRON,
        launch=by_environment,
        layers=f"core_attention experts router {CHUNKS}",
        units="routed_tokens samples tokens",
    ),
)


TORCH_ALONE = {
    "ddp.py": (2, 4),
    "spawned.py": (2, 4),
    "fsdp1.py": (2, 4),
    "fsdp2.py": (2, 6),  # before, it needs a GPU
    "tensor_parallel.py": (2, 4),
    "compiled.py": (2, 4),
    "pipeline.py": (2, 6),
}
"""Programs that need no other package, and since which torch they run."""


FORKED = (by_environment, BY_TORCH, COMPILING)
"""Ranks that nothing of a package starts or has imported: what that says, too, is the same without ARGUS."""


@pytest.fixture(scope="module")
def forking() -> Iterator[Forking]:
    forking = Forking("torch._dynamo", "torch._inductor.compile_fx")
    yield forking
    forking.close()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program(program: Program, forking: Forking, tmp_path: Path) -> None:
    """Trained with ARGUS and without, on two ranks; in the second half rank 1 is slow."""
    if other := os.environ.get("OTHER_TORCH"):
        oldest = TORCH_ALONE.get(program.command[0])
        if oldest is None or tuple(map(int, Path(other).name.removeprefix("torch-").split("."))) < oldest:
            pytest.skip("with another torch only what needs nothing else")
    if not PACKAGES.is_dir():
        pytest.skip("the frameworks are not installed (make frameworks)")
    with (
        ThreadPoolExecutor() as both
    ):  # they import together; without ARGUS there is no work, and it ends soon
        if program.launch in FORKED:
            bare_command, runs = list(program.command), forking
        else:
            bare_command, runs = program.launch(*program.command), as_command
        without = both.submit(run, bare_command, tmp_path / "without", argus=False, runs=runs)
        job = run(program.launch(*program.command), tmp_path / "with", argus=True)
    bare = without.result()
    assert job.status == 0, job.stderr
    figures = {
        "iterations": [iterations(rank) for rank in job.ranks],
        "error": {name: error(program, name, job) for name in program.timers},
        "coverage": [rank.coverage(window) for rank in job.ranks for window in (rank.even, rank.uneven)],
        **contrast(job, statistics.median),
        "waits": waits(job),
        "layers": " ".join(sorted({kind for kind, _ in job.ranks[0].said.layers})),
        "units": " ".join(sorted(job.ranks[0].said.work)),
        "signals": signals(job.ranks),
        "layout": [layout(rank) for rank in job.ranks],
        "even": half(job, lambda rank: rank.even),
        "uneven": half(job, lambda rank: rank.uneven),
    }
    if folder := os.environ.get("FIGURES"):
        about = {"name": program.name, "order": PROGRAMS.index(program), "what": program.what}
        (Path(folder) / f"{program.name}.json").write_text(json.dumps(about | figures))
    assert (bare.status, bare.stdout, bare.stderr) == (0, job.stdout, job.stderr), "it does not notice"
    assert all(counted == true for counted, true in figures["iterations"]), figures
    assert max(figures["error"].values()) <= TOLERANCE, figures
    assert 0.9 <= min(figures["coverage"]) <= max(figures["coverage"]) <= 1, figures
    # What else runs on the machine only adds: another's wait would be there in every iteration.
    least = contrast(job, min)
    assert least["slow"] > 1.5 > 1.15 > least["innocent"], (least, figures)
    assert figures["waits"] == program.waits, figures
    assert figures["layers"] == program.layers, figures
    assert figures["units"] == program.units, figures
    if not other and not folder:
        recorded = json.loads(RECORDED.read_text())["programs"][program.name]["signals"]
        assert figures["signals"] == recorded, (
            "what the hooks send has changed: `make frameworks` records it anew"
        )
    assert not [reason for rank in job.ranks for _, reason in rank.said.channels if "hook" in reason]


def layout(rank: Rank) -> dict[str, object]:
    """Where it says that it stands: its coordinate and the size of each dimension, and its role."""
    hello = rank.said.hellos[-1]
    sizes = {name: getattr(hello, f"{name}_size") for name in ("dp", "tp", "pp", "ep")}
    return {
        "sizes": {name: size for name, size in sizes.items() if size >= 0},
        "coordinates": {name: getattr(hello, name) for name, size in sizes.items() if size >= 0},
        "role": wire.decode_text(hello.role),
    }


def half(job: Job, window: Callable[[Rank], Window]) -> list[dict[str, object]]:
    """The shortest iteration of a half, by rank."""
    one = shortest(job.ranks, window)
    return [rank.iteration(own) for rank, own in zip(job.ranks, one, strict=True)]


def iterations(rank: Rank) -> tuple[int, int]:
    """As counted, and as they were."""
    return len(rank.said.iterations), len(rank.ends_ns)


def error(program: Program, timer: str, job: Job) -> float:
    """Of what is told to the program's own timer: of the median iteration, the worst of ranks and halves."""
    worst = 0.0
    for rank in job.ranks:
        for window in (rank.even, rank.uneven):
            found = [
                abs(rank.told(program.timers[timer], one) / timed - 1)
                for one in rank.each(window)
                if (timed := rank.timed(timer, one))
            ]
            worst = max(worst, statistics.median(found) if found else 0.0)
    return worst


def contrast(job: Job, of: Callable[[list[float]], float]) -> dict[str, float]:
    """Compute of rank 1 to that of rank 0 while rank 1 is slow, and of rank 0 to itself when nobody was.

    All phases of compute together; `innocent` is the phase of rank 0 that grew the most. `of`: which of a
    phase's iterations counts.
    """
    before, now = (job.ranks[0].compute(window, of) for window in (job.ranks[0].even, job.ranks[0].uneven))
    slow = job.ranks[1].compute(job.ranks[1].uneven, of)
    return {
        "slow": sum(slow.values()) / sum(now.values()),
        "innocent": max(now[phase] / before[phase] for phase in before),
    }


def waits(job: Job) -> str:
    """Phases of compute of which some rank says that a wait may remain in them."""
    found = {
        phase
        for rank in job.ranks
        for (phase, kind), said in rank.said.waits.items()
        if kind == "compute" and said != "none"
    }
    return " ".join(sorted(found))
