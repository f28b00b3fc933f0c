"""Verdicts back to Prometheus: as series, delivered or kept until they can be."""
