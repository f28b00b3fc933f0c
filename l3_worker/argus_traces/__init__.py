"""Traces of single ranks read back: where the time went, and which rank, link or host held the others up."""
