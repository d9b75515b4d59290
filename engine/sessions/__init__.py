"""Sessions: histories, their turns, their features, and who is admitted."""
