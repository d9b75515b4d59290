"""What a node serves: verifier, proposer, archive, and groups of ranks."""
