"""Several sources as one: a node with GPUs of two makers."""
