"""Seeing and changing what attention does in a model: our own layers, PyTorch's and those of transformers."""
