"""Nodes of roles for this room's tests."""

from tests.support.role_nodes import (
    checkpoint,
    client,
    neighbourhood,
    proposer,
    verifier,
)

__all__ = ["checkpoint", "client", "neighbourhood", "proposer", "verifier"]
