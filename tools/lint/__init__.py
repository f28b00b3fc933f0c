"""Checks of rules, alerts, runbooks, dashboards and Alertmanager's configurations: `python -m tools.lint`."""
