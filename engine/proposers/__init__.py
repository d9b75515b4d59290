"""Proposers guess blocks of tokens and decide none."""
