"""Memory of keys and values: slabs, their budget, and whom to part with."""
