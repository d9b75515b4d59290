"""Who is in the fleet and who is alive: SWIM over a join-semilattice of registers."""
