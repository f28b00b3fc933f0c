"""The measurements behind constants: `python -m bench.evidence`; docs/evidence tells what follows."""
