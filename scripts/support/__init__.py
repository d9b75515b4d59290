"""What scripts and tests run agents, fleets and oracles with; no product code imports it."""
