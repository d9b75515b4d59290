"""What others may have of a node at once: every bound in one place, and who holds how much."""
