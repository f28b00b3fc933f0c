"""What is known of each rank, and how ranks come and go."""
