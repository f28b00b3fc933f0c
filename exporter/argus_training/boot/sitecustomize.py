"""Runs at the start of every Python process below `argus-exporter run`, because its folder is on PYTHONPATH.

It has ARGUS wait for torch (`_argus_boot`). Then the next `sitecustomize` on the path runs, as if this one
were not there.
"""

# It must cost little in every Python process and parse in old ones: os.path and % formats are meant.
# ruff: noqa: PTH100, PTH120, UP031
# mypy: allow-untyped-defs, allow-untyped-calls

import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _chain():
    """Run the sitecustomize that this one hides; its exceptions are its own."""
    from importlib.machinery import PathFinder

    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _HERE]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    import _argus_boot  # type: ignore[import-not-found]  # it lies beside this file, and that is on sys.path

    _argus_boot.start()
except Exception as error:
    sys.stderr.write("argus: not attached: %r\n" % (error,))
_chain()
