"""The record of every head: its arrays, how they are written, how they are read."""
