"""What people read: reports of a cycle and of a job, heatmaps, what the doctor found."""
