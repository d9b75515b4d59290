"""What the rooms of the engine promise each other: caches, verifiers, evicted stores, drafts."""
