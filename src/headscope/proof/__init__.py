"""The proof that attention is right: its properties (`verify`), and its computation (`trace`)."""
