"""The network: embedding -> encoder -> pooling -> logits."""
