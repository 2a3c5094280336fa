"""What a run has reached: scores, what they are compared with, metrics.json, what is printed."""
