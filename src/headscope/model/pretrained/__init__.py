"""Encoders of the BERT family, built of our own layers and filled with the weights of a checkpoint."""
