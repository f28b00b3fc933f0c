"""Draws generated dashboards without Grafana, from their own JSON and real query answers.

A preview: it knows the panels, units, colours, thresholds, mappings and transformations that ARGUS uses, and
nothing else of Grafana. `make preview` writes pages and pictures to build/preview.
"""
