"""The node as a whole: composed, served, drained."""
