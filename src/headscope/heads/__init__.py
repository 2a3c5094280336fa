"""What every attention head does: its maps, numbers about them, and their record."""
