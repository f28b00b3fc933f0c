"""Stacks of the ranks of this host, sampled from outside by py-spy: `supervisor` runs a `watch` for each."""
