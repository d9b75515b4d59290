"""A fleet with an authority, for this room's tests."""

from tests.support.homes import home

__all__ = ["home"]
