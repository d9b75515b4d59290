"""What a node does, second by second, and those who watch it."""
