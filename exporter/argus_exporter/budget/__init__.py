"""What a fleet costs Prometheus, before it is deployed: series by source, memory, samples a second."""
