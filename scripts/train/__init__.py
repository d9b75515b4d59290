"""Training and making of models."""
