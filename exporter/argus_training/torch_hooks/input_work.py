"""Work that nobody tells: tokens and samples of a forward, from the shapes of what the model is called with.

Shapes and types of a tensor stand on the host, also where its numbers are on a GPU: nothing is waited for.
Counted at the model's call, so whatever loads, pads, packs or distributes the data, a rank counts what it
computes: tokens with their padding. Of sequences that are packed into one (`cu_seq_lens_q` of transformers)
pairs of attention too, the squares of their lengths, where these are on the host. The user's `work()`
switches this off.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

TOKENS: Final = ("input_ids", "tokens", "inputs", "idx")
"""Arguments that hold tokens, and nothing else where they hold whole numbers."""
SAMPLES: Final = ("pixel_values", "input_values", "input_features", "inputs_embeds", "x")
_NAMES: Final = (*TOKENS, *SAMPLES)


def counter(
    torch: Any, work: Callable[[str, float], object], totals: dict[str, float]
) -> Callable[[tuple[Any, ...], Any], None]:
    """What counts the work of one call.

    Args:
        work: takes a unit and an amount, for the first time.
        totals: of the units that are known, added to without a call.

    Returns:
        Takes the positional arguments of the model (itself first) and the named ones. Whole numbers of one
        dimension or more are tokens, and a batch in their first of two; all else counts its first dimension
        as samples. Where no tensor is found nothing is counted.
    """
    tensor = torch.Tensor

    def add(unit: str, amount: float) -> None:
        if unit in totals:
            totals[unit] += amount
        else:
            work(unit, amount)

    def count_pairs(ends: Any) -> None:
        # On an accelerator reading waits for it. No operation of torch's: another tool may record those.
        if isinstance(ends, tensor) and ends.device.type == "cpu":
            places = ends.tolist()
            lengths = map(operator.sub, places[1:], places)
            add("attention_pairs", sum(length * length for length in lengths))

    whole = {torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8}

    def count(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        found = args[1] if len(args) > 1 else None
        if isinstance(found, (list, tuple)) and found:  # inputs and targets
            found = found[0]
        named: Mapping[str, Any] = found if isinstance(found, Mapping) else kwargs
        if not isinstance(found, tensor):
            found = next((named[name] for name in _NAMES if isinstance(named.get(name), tensor)), None)
            if found is None:
                return
        shape = found.shape
        if not shape:
            return
        if found.dtype in whole:
            add("tokens", found.numel())
            if len(shape) > 1:
                add("samples", shape[0])
            if "cu_seq_lens_q" in named:
                count_pairs(named["cu_seq_lens_q"])
        elif "samples" in totals:  # as `add` does: this is in every step
            totals["samples"] += shape[0]
        else:
            work("samples", shape[0])

    return count
