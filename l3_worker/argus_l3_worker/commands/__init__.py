"""The commands of `argus-l3-worker`, a module each."""
