"""What Prometheus says of a window of a job, put together rank by rank."""
