"""Grafana dashboards of ARGUS, built with grafanalib; `make generate` writes dashboards/generated/*.json."""

from __future__ import annotations
