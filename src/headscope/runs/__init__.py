"""A finished run: its folder, the network in it, its predictions."""
