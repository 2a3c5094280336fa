"""What the scripts hand over to."""
