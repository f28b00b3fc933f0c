"""The commands of `argus-simulator`, a module each."""
