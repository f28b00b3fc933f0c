"""Every committed generated file from its source; `--check` changes nothing and exits 1 on drift."""

from __future__ import annotations

import sys

from tools import generate_causes

if __name__ == "__main__":
    causes = generate_causes.main(sys.argv[1:])  # first: others import the table that it writes
    from tools import (
        generate_alert_page,
        generate_card,
        generate_chart,
        generate_coverage,
        generate_dashboards,
        generate_deploy,
        generate_docs,
        generate_frameworks,
        generate_gpu_day,
        generate_native,
        generate_rules,
        generate_scale_out,
        generate_scenarios,
        generate_series_page,
        generate_version,
    )

    # All of them, also when one fails: one run shows everything that is out of date.
    statuses = [
        generator.main(sys.argv[1:])
        for generator in (
            generate_version,  # the rules and the manifests carry it
            generate_rules,
            generate_alert_page,
            generate_card,
            generate_chart,
            generate_coverage,
            generate_dashboards,
            generate_deploy,  # reads what the dashboards became
            generate_docs,
            generate_frameworks,
            generate_gpu_day,
            generate_native,
            generate_scale_out,  # counts the rules
            generate_scenarios,
            generate_series_page,  # reads what the dashboards became, and the pages
        )
    ]
    sys.exit(max(causes, *statuses))
