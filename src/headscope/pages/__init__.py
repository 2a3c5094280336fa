"""A run packed into a page, in which JavaScript computes what the run computes."""
