"""What every attention head does: its maps, numbers about them, and a page that shows both."""
