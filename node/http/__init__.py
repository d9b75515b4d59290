"""HTTP on every node: OpenAI's shapes, health, metrics. A user of the client like any other."""
