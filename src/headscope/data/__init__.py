"""From any source of labelled texts to batches of token ids."""
