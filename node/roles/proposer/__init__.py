"""The draft stream, both sides of it, and the proposer role."""
