"""Verifiers that several processes serve together, on this host and on others."""
