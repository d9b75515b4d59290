"""Tensor links between nodes: chunks, links, context features. Transports of one contract."""
