"""`fleet chat`."""
