"""Attention of models that are not ours: callbacks of trainers, classifiers of transformers."""
