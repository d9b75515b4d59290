"""`fleet join`: an agent, and what it says while it runs."""
