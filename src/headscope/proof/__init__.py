"""The proof that the attention is right: its numerical properties (`verify`), and its computation (`trace`)."""
