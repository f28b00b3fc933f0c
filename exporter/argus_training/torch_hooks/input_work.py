"""Work that nobody tells: tokens and samples of a forward, from the shapes of what the model is called with.

Shapes and types of a tensor stand on the host, also where its numbers are on a GPU: nothing is waited for.
Counted at the model's call, so whatever loads, pads, packs or distributes the data, a rank counts what it
computes: tokens with their padding. Of sequences that are packed into one (`cu_seq_lens_q` of transformers)
pairs of attention too, the squares of their lengths, where these are on the host. The user's `work()`
switches this off.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final

TOKENS: Final = ("input_ids", "tokens", "inputs", "idx")
"""Arguments that hold tokens, and nothing else where they hold whole numbers."""
SAMPLES: Final = ("pixel_values", "input_values", "input_features", "inputs_embeds", "x")
_NAMES: Final = (*TOKENS, *SAMPLES)


def counter(
    torch: Any, totals: defaultdict[str, float]
) -> Callable[[tuple[Any, ...], Mapping[str, Any]], None]:
    """What counts the work of one call.

    Args:
        totals: by unit, of all calls so far.

    Returns:
        Takes the positional arguments of the model (itself first) and the named ones. Whole numbers of one
        dimension or more are tokens, and a batch in their first of two; all else counts its first dimension
        as samples. Where no tensor is found nothing is counted. It runs in every step, so it calls no other
        function of ours: that would be one more for dynamo to leave alone, which costs as much as all of it.
    """
    tensor, tracing = torch.Tensor, torch._C._get_tracing_state
    whole = {torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8}

    def count(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        found = args[1] if len(args) > 1 else None
        if not isinstance(found, tensor):
            if isinstance(found, (list, tuple)) and found:  # inputs and targets
                found = found[0]
            if found is not None and isinstance(found, Mapping):
                kwargs = found
            if not isinstance(found, tensor):
                for name in _NAMES:
                    found = kwargs.get(name)
                    if isinstance(found, tensor):
                        break
                else:
                    return
        # torch.jit.trace records what a shape is asked for, and the name of what it is asked of.
        if tracing() is not None:
            return
        if found.is_nested:  # of several lengths; it has no shape of plain numbers
            totals["samples"] += found.size(0)
            if found.dtype in whole:
                totals["tokens"] += found.numel()
            return
        shape = found.shape
        if not shape or type(samples := shape[0]) is not int:  # a symbol: make_fx
            return
        if found.dtype not in whole:
            totals["samples"] += samples
            return
        totals["tokens"] += shape.numel()
        if len(shape) > 1:
            totals["samples"] += samples
        ends = kwargs.get("cu_seq_lens_q")
        # On an accelerator reading waits for it. No operation of torch's: another tool may record those.
        if isinstance(ends, tensor) and ends.device.type == "cpu":
            places = ends.tolist()
            lengths = list(map(operator.sub, places[1:], places))
            totals["attention_pairs"] += sum(map(operator.mul, lengths, lengths))

    return count
