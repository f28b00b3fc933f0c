"""Checks of rules, alerts, runbooks, dashboards, Alertmanager and long classes: `python -m tools.lint`."""
