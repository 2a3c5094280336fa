"""From a configuration to a trained model in a run folder."""
