"""Whom a fleet trusts: its keepers, who was let in and who was put out, as signed statements."""
