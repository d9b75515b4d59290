"""Models, caches, verifiers, proposers and the speculative loop; no network."""
