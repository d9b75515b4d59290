"""Context vectors on links: what makes them is fetched, they are sent, they arrive."""
