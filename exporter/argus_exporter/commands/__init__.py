"""The commands of `argus-exporter`, a module each."""
