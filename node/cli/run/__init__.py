"""`fleet run`: a model by its name, and an answer."""
