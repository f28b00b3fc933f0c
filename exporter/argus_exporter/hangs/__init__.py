"""What is looked at only once a job stands still."""
