"""Pure decisions of the speculative loop."""
