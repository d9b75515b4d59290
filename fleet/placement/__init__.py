"""Which verifier, proposer and archives serve a session, and why."""
