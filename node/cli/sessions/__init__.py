"""`fleet sessions`: those of a node, or of all that answer, and the way to end them."""
