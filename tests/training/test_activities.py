"""What else than training a real torch process does: compilation, checkpoints, evaluation, collections."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from argus_core.wire import Activity

from .jobs import LOOP, environment, run, run_rank, run_ranks
from .reader import Reader, Said

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

AT_ONCE = {"ARGUS_FLUSH_MILLISECONDS": "0", "ARGUS_WARMUP_ITERATIONS": "0"}


def changes(said: Said) -> list[Activity]:
    """Activities without repetition."""
    return [one for index, one in enumerate(said.activities) if said.activities[index - 1 : index] != [one]]


def test_checkpoint_is_an_activity_while_it_is_written(reader: Reader, tmp_path: Path) -> None:
    """torch.save to a file; one into memory, or in another thread, is none. Same file as without ARGUS."""
    program = LOOP + (
        "import io, threading\n"
        "train()\n"
        "torch.save(model.state_dict(), io.BytesIO())\n"
        f"thread = threading.Thread(target=torch.save, args=(1, {str(tmp_path / 'other')!r}))\n"
        "thread.start(); thread.join()\n"
        f"torch.save(model.state_dict(), {str(tmp_path / 'saved')!r})\n"
        "train()\n"
    )
    result = run_rank(program, reader.path, **AT_ONCE)
    assert (result.returncode, result.stderr) == (0, "")
    assert changes(reader.ended()) == [Activity.TRAIN, Activity.CHECKPOINT, Activity.TRAIN]
    with_argus = (tmp_path / "saved").read_bytes()
    assert run_rank(program, reader.path, ARGUS_DISABLE="1").returncode == 0
    assert (tmp_path / "saved").read_bytes() == with_argus


def test_distributed_checkpoint_is_an_activity(reader: Reader, tmp_path: Path) -> None:
    """torch.distributed.checkpoint.save, imported after us."""
    program = LOOP + (
        "import warnings; warnings.simplefilter('ignore')\n"
        "import torch.distributed.checkpoint as dcp\n"
        "train()\n"
        f"dcp.save(model.state_dict(), checkpoint_id={str(tmp_path / 'saved')!r})\n"
        "train()\n"
    )
    result = run_rank(program, reader.path, **AT_ONCE)
    assert result.returncode == 0, result.stderr
    assert changes(reader.ended()) == [Activity.TRAIN, Activity.CHECKPOINT, Activity.TRAIN]


def test_evaluation_is_an_activity_until_training_goes_on(reader: Reader) -> None:
    """The model in evaluation mode without gradients; no_grad alone, in training mode, is none."""
    evaluation = "with torch.no_grad():\n    for x in loader: model(x)\n"
    program = LOOP + "train()\n" + evaluation + "train()\n" + "model.eval()\n" + evaluation
    program += "model.train()\ntrain()\n"
    result = run_rank(program, reader.path, **AT_ONCE)
    assert (result.returncode, result.stderr) == (0, "")
    said = reader.ended()
    assert changes(said) == [Activity.TRAIN, Activity.EVALUATION, Activity.TRAIN]
    assert len(said.iterations) == 30


EVALUATED = """
import torch
torch.set_num_threads(1)
file = "file://" + __import__("tempfile").mktemp()
torch.distributed.init_process_group("gloo", init_method=file, rank=0, world_size=1)
Ddp = torch.nn.parallel.DistributedDataParallel
inner = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
model, loader = Ddp(inner), torch.utils.data.DataLoader(torch.rand(100, 8), batch_size=2)
average = torch.optim.swa_utils.AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train():
    for index, x in enumerate(loader):
        model(x).sum().backward()
        if index % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
def evaluate(by, batches):
    with torch.no_grad():
        for x in batches: by(x)
for _ in range(3): train()
inner.eval()
evaluate(inner, loader)
inner.train()
train()
optimizer.step()
average.eval()
evaluate(average, loader)
train()
teach = torch.nn.Linear(8, 8)
for x in loader:
    evaluate(teach, [next(iter(loader)), next(iter(loader))])
    model(x).sum().backward()
    optimizer.step()
"""


def test_an_evaluation_is_seen_by_the_module_within_or_by_the_data(reader: Reader) -> None:
    """By DDP's module, after micro-batches that are left over; by an average of the weights.

    The latter by batches that are fetched without gradients. A loop that fetches so in each iteration
    evaluates once at most: before that is known.
    """
    result = run_rank(EVALUATED, reader.path, **AT_ONCE)
    assert (result.returncode, result.stderr) == (0, "")
    said = reader.ended()
    assert changes(said)[:5] == [Activity.TRAIN, *[Activity.EVALUATION, Activity.TRAIN] * 2]
    assert changes(said).count(Activity.EVALUATION) <= 3
    assert len(said.iterations) >= 5 * 12 + 45


def test_dynamo_compilation_is_counted_and_an_activity(reader: Reader) -> None:
    """torch.compile with the eager backend: its own callbacks tell begin and end."""
    program = (
        LOOP
        + "train()\ncompiled = torch.compile(model, backend='eager')\ncompiled(torch.ones(1, 8))\ntrain()\n"
    )
    result = run_rank(program, reader.path, **AT_ONCE)
    assert result.returncode == 0, result.stderr
    said = reader.ended()
    assert changes(said) == [Activity.TRAIN, Activity.COMPILE, Activity.TRAIN]
    compiler, last = said.compilations[-1]
    assert compiler == "dynamo"
    assert last.total_count >= 1
    assert last.total_seconds >= last.duration_ns / 1e9 > 0


def test_a_reset_of_dynamo_does_not_end_the_counting(reader: Reader) -> None:
    """`torch._dynamo.reset` clears everybody's callbacks."""
    program = LOOP + (
        "train()\ncompiled = torch.compile(model, backend='eager')\ncompiled(torch.ones(1, 8))\n"
        "torch._dynamo.reset()\ncompiled(torch.ones(1, 8))\ntrain()\n"
    )
    result = run_rank(program, reader.path, **AT_ONCE)
    assert result.returncode == 0, result.stderr
    _, last = reader.ended().compilations[-1]
    assert last.total_count == 2


def test_triton_compilations_are_counted(reader: Reader, tmp_path: Path) -> None:
    """A stand-in of triton.knobs; a listener that is set goes on hearing, a cache hit is no compilation."""
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").touch()
    (tmp_path / "triton" / "knobs.py").write_text(
        "class compilation:\n    heard = []\n    listener = lambda **told: compilation.heard.append(1)\n"
        "compilation.listener = staticmethod(compilation.listener)\n"
    )
    program = (
        LOOP + "train()\n"
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import triton.knobs as knobs\n"
        "from types import SimpleNamespace\n"
        "for hit in (False, True, False):\n"
        "    knobs.compilation.listener(cache_hit=hit, times=SimpleNamespace(total=2000))\n"
        "print(len(knobs.compilation.heard))\n"
    )
    result = run_rank(program, reader.path, **AT_ONCE)
    assert (result.stdout, result.stderr) == ("3\n", "")
    compiler, last = reader.ended().compilations[-1]
    assert (compiler, last.total_count, last.total_seconds) == ("triton", 2, pytest.approx(0.004))


def test_collections_are_counted_by_generation(reader: Reader) -> None:
    """Totals of each generation; a long one is a phase too."""
    program = LOOP + (
        "import gc\ntrain()\n"
        "keep = [[index] for index in range(300_000)]\n"
        "for _ in range(3): gc.collect()\n"
        "train()\n"
    )
    assert run_rank(program, reader.path, **AT_ONCE).returncode == 0
    said = reader.ended()
    last = {record.generation: record for record in said.collections}
    assert last[2].total_count >= 3
    assert last[2].total_seconds >= last[2].duration_ns / 1e9
    assert said.count()["gc"] >= 3


def test_named_functions_are_phases(reader: Reader) -> None:
    """Functions, methods and static methods; what cannot be found is said once and hurts nobody."""
    names = "torch.cuda@is_available,torch@Tensor.item,torch.nope@x,torch@nothing,torch,json@dumps"
    program = LOOP + "import json\nfor _ in range(3): train(); torch.cuda.is_available(); json.dumps(1)\n"
    result = run_rank(program, reader.path, ARGUS_TRACED_PYTHON_API=names)
    assert result.returncode == 0
    count = reader.ended().count()
    # A DataLoader draws its seed by `item` too.
    assert (count["torch.cuda.is_available"], count["torch.Tensor.item"], count["json.dumps"]) == (3, 6, 3)
    wrong = [line for line in result.stderr.splitlines() if "ARGUS_TRACED_PYTHON_API" in line]
    assert len(wrong) == 3
    assert [name in line for name, line in zip(("torch.nope", "nothing", "'torch'"), wrong, strict=True)] == [
        True
    ] * 3


def test_plain_script_is_rank_0_once_it_trains(reader: Reader) -> None:
    """Without a launcher, and silent where nothing is trained."""
    env = environment(reader.path)
    for name in ("WORLD_SIZE", "LOCAL_RANK"):
        env.pop(name, None)
    assert run(
        [sys.executable, "-c", "import torch\nfor _ in torch.utils.data.DataLoader([1, 2]): pass"], env
    )
    assert run([sys.executable, "-c", LOOP + "train()"], env).returncode == 0
    said = reader.ended()
    assert (len(said.hellos), len(said.iterations)) == (1, 10)
    assert (said.hellos[0].rank, said.hellos[0].world_size) == (0, 1)


SPAWN = """
import os, torch
import torch.multiprocessing as mp
def work(rank, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/r", rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(12):
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
    torch.distributed.barrier()
    del model, optimizer  # PyTorch 2.13 with gloo may abort where DDP outlives its process group
    __import__("gc").collect()
    torch.distributed.destroy_process_group()
if __name__ == "__main__":
    import sys
    mp.spawn(work, args=(sys.argv[1],), nprocs=2)
"""


def test_spawned_ranks_are_known_by_their_process_group(reader: Reader, tmp_path: Path) -> None:
    """mp.spawn, below a parent that Slurm gave a rank: its children report as what they are."""
    script = tmp_path / "spawning.py"
    script.write_text(SPAWN)
    env = environment(reader.path, SLURM_PROCID="0", SLURM_NTASKS="1")
    result = run([sys.executable, str(script), str(tmp_path)], env)
    assert result.returncode == 0, result.stderr
    for rank in (0, 1):
        said = reader.ended(rank)
        assert [(hello.rank, hello.world_size) for hello in said.hellos] == [(rank, 2)]
        assert len(said.iterations) == 12
        assert said.exit_status == 0


FSDP = """
import os, torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(16, 16)) for _ in range(3)])
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(15):
    optimizer.zero_grad()
    model(torch.ones(4, 16)).sum().backward()
    optimizer.step()
torch.distributed.barrier()
del model, optimizer
__import__("gc").collect()
torch.distributed.destroy_process_group()
"""


def test_fsdp2_is_seen(reader: Reader) -> None:
    """fully_shard over gloo: phases, iterations, the mesh, and the collectives of its group."""
    run_ranks(FSDP, 2, environment(reader.path))
    for rank in (0, 1):
        said = reader.ended(rank)
        count = said.count()
        assert count["optimizer"] == count["backward"] == 15
        assert count["forward"] == 14
        assert count["dp-reduce-scatter"] > 0
        assert len(said.iterations) >= 14
        assert (said.hellos[-1].dp, said.hellos[-1].dp_size) == (rank, 2)
        assert said.page is not None
        sequences = {one.group: one.number for one in said.page.read().collectives}
        assert sequences["dp"] >= 14
    numbers = [reader.ranks[rank].page.read().collectives for rank in (0, 1)]  # type: ignore[union-attr]
    assert [(one.group, one.number) for one in numbers[0]] == [(one.group, one.number) for one in numbers[1]]


GROUPS = """
import torch
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
tensor = torch.distributed.new_group([0, 1], group_desc="tensor_model_parallel")
for one in (0, 1):
    torch.distributed.new_group([one], group_desc="data_parallel")
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(12):
    loss = model(torch.ones(4, 8)).sum()
    torch.distributed.all_reduce(loss.detach(), group=tensor)
    loss.backward()
    optimizer.step()
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


def test_described_process_groups_are_the_layout(reader: Reader) -> None:
    """Plain new_group over gloo: each rank's coordinates."""
    run_ranks(GROUPS, 2, environment(reader.path))
    for rank in (0, 1):
        said = reader.ended(rank)
        hello = said.hellos[-1]
        assert (hello.tp, hello.tp_size, hello.dp, hello.dp_size) == (rank, 2, 0, 1)
