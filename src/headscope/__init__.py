"""headscope trains Transformer text classifiers and shows what every attention head does.

The folders are stages, and each imports only what stands above it in this list:

    settings, errors  how a configuration is written and checked; what a user is told
    files             writing a file whole or not at all
    attention         the verified layer: softmax(Q K^T / sqrt(d)) V, written once
    model             embedding -> encoder -> pooling -> logits; from scratch or from a checkpoint
    data              any source -> checked texts -> token ids -> batches
    inspection        maps and numbers of every head, their record, and the page that shows them
    tensorboard       pictures and text for TensorBoard's tabs, and the Heads tab
    proof, tracing    what verify.py claims, and what trace.py sees of the attention while it runs
    training          configuration, LightningModule, run folder, train(config)
    commands          what the scripts hand over to

This file imports nothing, so that `--help` answers at once.
"""

__version__ = "0.1.0"
