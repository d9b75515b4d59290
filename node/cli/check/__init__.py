"""`fleet check`: a model loaded here, proven exact and measured, without a node."""
