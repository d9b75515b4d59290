"""How long tests wait for what comes about, on whatever machine."""

PATIENCE_SECONDS = 60.0
"""Long enough for two busy cores, short enough to fail inside a test's limit.

Nothing takes as long where it works: what a test says of time is said by other numbers.
"""
