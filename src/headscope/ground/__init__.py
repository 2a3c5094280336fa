"""What everything stands on: errors, files, signals, the terminal."""
