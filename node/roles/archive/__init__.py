"""Evicted positions in another process's memory: the archive that is served, and those used."""
