"""A run as an ONNX model, with a front end that needs numpy and no torch."""
