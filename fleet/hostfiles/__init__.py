"""Hostfiles: the ranks of a group, and where each of them runs."""
