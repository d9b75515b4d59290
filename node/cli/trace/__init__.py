"""`fleet trace`: a request's way through the fleet, and where its time went."""
