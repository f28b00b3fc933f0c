"""L3 worker: reads kernel modes from Prometheus, finds the rank whose kernels changed, writes verdicts back.

Layers, each importing only those before it: `triples`, `wasserstein`, `shifts`, `judge`, `verdicts` compute;
`results` and `report` put into shape; `prometheus`, `windows`, `spool`, `delivery`, `cycle`,
`serve` and `cli` touch network, files and clocks.
"""
