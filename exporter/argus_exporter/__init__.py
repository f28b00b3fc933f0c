"""The exporter of a GPU host: takes what its ranks say, and shows it to Prometheus."""
