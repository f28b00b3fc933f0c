"""The fault lab: scenarios of the fault catalogue, and what is true of them."""

from argus_simulator.engine.faults import Fault
from argus_simulator.lab.scenario import Scenario, Variant, all_scenarios, load_scenario, shipped, variants
from argus_simulator.lab.truth import Finding, Truth, write_truth

__all__ = [
    "Fault",
    "Finding",
    "Scenario",
    "Truth",
    "Variant",
    "all_scenarios",
    "load_scenario",
    "shipped",
    "variants",
    "write_truth",
]
