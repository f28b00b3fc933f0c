"""Both ranks as children of one process that has imported what they need, which takes longer than they do.

    python forked.py MODULE[,MODULE...] PROGRAM [ARGUMENT ...]

With ARGUS that process attaches, never trains and stays silent; each child attaches as it joins its group. So
it is not for programs that join within what makes their mesh, nor for packages that keep functions of
torch.distributed under names of their own before that (Megatron, DeepSpeed).
"""

# ruff: noqa: PTH120

import gc
import importlib
import os
import runpy
import sys

for module in sys.argv[1].split(","):
    importlib.import_module(module)
gc.freeze()  # else each child goes through all of it as its interpreter ends: 1 s of CPU
sys.argv = sys.argv[2:]
sys.path[0] = os.path.dirname(sys.argv[0])
children: list[int] = []
while len(children) < 2 and all(children):
    children.append(os.fork())
if children[-1]:
    sys.exit(max(abs(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])) for child in children))
rank = str(len(children) - 1)
os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE="2")
runpy.run_path(sys.argv[0], run_name="__main__")
