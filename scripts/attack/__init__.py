"""What hostile and careless callers do to a node, as scripts; everything stays on loopback."""
