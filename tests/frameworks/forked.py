"""Both ranks as children of one process that has imported what they need, which takes longer than they do.

    python forked.py MODULE[,MODULE...] PROGRAM [ARGUMENT ...]
    python forked.py MODULE[,MODULE...]

With ARGUS that process attaches, never trains and stays silent; each child attaches as it joins its group. So
it is not for programs that join within what makes their mesh, nor for packages that keep functions of
torch.distributed under names of their own before that (Megatron, DeepSpeed).

Without a program it runs one after the other: each line of its input is one as JSON, with its environment and
the files for what it says; it answers with the exit status.
"""

# ruff: noqa: PTH120

import gc
import importlib
import json
import os
import runpy
import sys


def next_program() -> list[str]:
    """Returns in a process of its own, for each line."""
    for line in sys.stdin:
        order = json.loads(line)
        job = os.fork()
        if not job:
            for file, name in ((0, os.devnull), (1, order["stdout"]), (2, order["stderr"])):
                os.dup2(os.open(name, os.O_RDWR | os.O_CREAT, 0o600), file)
            os.environ.clear()
            os.environ.update(order["environment"])
            return order["program"]
        print(os.waitstatus_to_exitcode(os.waitpid(job, 0)[1]), flush=True)
    sys.exit(0)


for module in sys.argv[1].split(","):
    importlib.import_module(module)
gc.freeze()  # else each child goes through all of it as its interpreter ends: 1 s of CPU
sys.argv = sys.argv[2:] or next_program()
sys.path[0] = os.path.dirname(sys.argv[0])
children: list[int] = []
while len(children) < 2 and all(children):
    children.append(os.fork())
if children[-1]:
    sys.exit(max(abs(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])) for child in children))
rank = str(len(children) - 1)
os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE="2")
runpy.run_path(sys.argv[0], run_name="__main__")
