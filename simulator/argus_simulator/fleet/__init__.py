"""`argus-simulator fleet`: the simulated job at 1,000 to 100,000 ranks, as the series of its exporters.

No exporter runs: all ranks are computed together, as arrays, and written to Prometheus or to a file.
"""
