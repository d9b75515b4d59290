"""GGUF files: found, read with strict bounds, and what they say of their model. No tensors."""
