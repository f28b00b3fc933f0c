"""How many CUDA graphs are captured: what must not be recorded, asked or switched meanwhile is not.

The driver's question covers the current stream only, and a query elsewhere breaks a global capture too. So
they are counted from the import of torch on: one that had begun before would be seen by nobody.
"""

from __future__ import annotations

import functools
from typing import Any


class GraphCaptures:
    """Counts what `torch.cuda.CUDAGraph` captures, on any stream and by any thread of the process.

    Args:
        graph: that class.
    """

    def __init__(self, graph: Any) -> None:
        self.running = 0
        self.begun = 0
        begin, end = graph.capture_begin, graph.capture_end

        @functools.wraps(begin)
        def capture_begin(*args: Any, **kwargs: Any) -> Any:
            self.running += 1
            self.begun += 1
            try:
                return begin(*args, **kwargs)
            except BaseException:
                self.running -= 1
                raise

        @functools.wraps(end)
        def capture_end(*args: Any, **kwargs: Any) -> Any:
            try:
                return end(*args, **kwargs)
            finally:
                self.running = max(self.running - 1, 0)

        graph.capture_begin, graph.capture_end = capture_begin, capture_end
