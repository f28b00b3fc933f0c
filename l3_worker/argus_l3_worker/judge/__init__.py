"""From triples to verdicts: distances, shifts, groups of ranks, causes. No I/O."""
