"""Pictures and text for TensorBoard: nothing here imports torch."""
