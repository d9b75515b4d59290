"""Models as folders in the hub's format: found, fetched, checked, named by digests."""
