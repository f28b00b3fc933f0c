"""Jobs, the exporters' state and the shipped rules in virtual time: docs/fault-lab.md, "Fast play"."""
