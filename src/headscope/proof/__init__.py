"""The proof that the attention is right: claims, each held against an oracle that shares no code with it."""
