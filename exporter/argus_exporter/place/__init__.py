"""Where a rank stands in the job: coordinates, process groups, roles."""
