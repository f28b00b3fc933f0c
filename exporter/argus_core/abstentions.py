"""Why rules judge nobody, in words: causes of a verdict `abstain`."""

from __future__ import annotations

from typing import Final

ABSTENTIONS: Final = {
    "activity": "the job does something other than training",
    "stall": "the job stands still",
    "coverage": "too few ranks are heard",
}
