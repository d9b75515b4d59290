"""Nodes of roles for this room's tests."""

from tests.support.role_nodes import (
    checkpoint,
    client,
    neighbourhood,
    proposer,
    settled_once,
    verifier,
)

__all__ = ["checkpoint", "client", "neighbourhood", "proposer", "settled_once", "verifier"]
