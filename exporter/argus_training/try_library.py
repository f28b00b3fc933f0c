"""Loads libargus_cupti where training will run, before it does: an init container of the training image.

    python3 -I -S try_library.py LIBRARY || true

What the versions of glibc do not tell is found here, where nothing can be harmed: another architecture, a
missing library, a folder that forbids execution, a crash while loading. Then `LIBRARY.refused` holds the
reason, ranks leave the library out, and say so on the kernels' channel (`argus_core.injection.unfit`).

It stands alone, and runs on any Python 3.
"""

# ruff: noqa: PTH107, PTH123, UP031

import ctypes
import os
import sys

REFUSED = ".refused"


def try_library(library: str) -> None:
    """Leave a note beside a library that does not load, and none beside one that does."""
    note = library + REFUSED
    with open(note, "w") as file:
        file.write("the process that tried it ended")  # stays where loading kills
    try:
        ctypes.CDLL(library)
    except OSError as error:
        with open(note, "w") as file:
            file.write(str(error))
        sys.stderr.write("argus: no kernels: %s\n" % (error,))
        return
    os.remove(note)


if __name__ == "__main__":
    try_library(sys.argv[1])
