"""What Prometheus sees: collectors, the page, discovery, samples by remote write."""
