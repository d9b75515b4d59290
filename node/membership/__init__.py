"""Who is in the fleet: identity, cards on the wire, gossip, discovery, channels to peers."""
