"""The same entry points under atheris: `python -m bench.fuzz.guided TARGET [-runs=100000] [OPTION ...]`.

Needs `pip install .[fuzz]` (wheels for Linux on x86-64). Coverage of our own packages guides the mutations.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent


def main() -> int:
    try:
        import atheris
    except ImportError:
        print("bench.fuzz.guided: atheris is not installed: pip install '.[fuzz]'", file=sys.stderr)
        return 2
    sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests")]
    with atheris.instrument_imports(include=["argus_core", "argus_exporter"]):
        from bench.fuzz.targets import TARGETS
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in TARGETS:
        print(f"bench.fuzz.guided: target {name!r}; allowed: {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    logging.disable(logging.CRITICAL)
    corpus = Path(tempfile.mkdtemp(prefix=f"argus-fuzz-{name}-"))
    print(f"new inputs that reach new code are kept in {corpus}", file=sys.stderr)
    for number, seed in enumerate(TARGETS[name].seeds()):
        (corpus / str(number)).write_bytes(seed)

    def one_input(data: bytes) -> None:
        TARGETS[name].run(data)

    atheris.Setup([sys.argv[0], str(corpus), *sys.argv[2:]], one_input)
    atheris.Fuzz()  # does not return: libFuzzer ends the process
    return 0


if __name__ == "__main__":
    sys.exit(main())
