"""What commands and training may be told: settings, their defaults, their checks."""
