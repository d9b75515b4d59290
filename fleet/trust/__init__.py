"""Whom a fleet trusts: keepers, codes by which machines join, and who was put out."""
