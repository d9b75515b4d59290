"""The choice of a token: a function of logits, history, seed and position."""
