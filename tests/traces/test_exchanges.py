"""Which rank a transfer goes to is read from the names that the frameworks give it."""

from __future__ import annotations

import pytest

from argus_traces.exchanges import transfers
from argus_training.frameworks.deepspeed import INSTRUCTIONS
from argus_training.frameworks.megatron import TIMERS


@pytest.mark.parametrize(
    ("phase", "found"),
    [
        ("send_forward", [("send", "forward")]),
        ("send_forward_recv_backward", [("send", "forward"), ("recv", "backward")]),
        ("pp-forward-recv", [("recv", "forward")]),
        ("pp-forward-send-backward-recv", [("send", "forward"), ("recv", "backward")]),
        ("pp-send-activation", [("send", "activation")]),
        ("pp-recv-grad", [("recv", "grad")]),
        ("dp-all-reduce", []),
        ("forward", []),
    ],
)
def test_a_transfer_is_named_after_what_it_does(phase: str, found: list[tuple[str, str]]) -> None:
    """Half and direction, in either order."""
    assert transfers(phase) == found


def test_every_transfer_that_a_framework_names_is_known() -> None:
    """The names that the producer gives to the pipeline's transfers of Megatron-LM and DeepSpeed."""
    given = {name for name, _ in (*TIMERS.values(), *INSTRUCTIONS.values())}
    named = {name for name in given if name.startswith("pp-") and ("send" in name or "recv" in name)}
    assert len(named) >= 10
    assert {name for name in named if not transfers(name)} == set()
