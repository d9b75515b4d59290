"""Joining a fleet by a code: invitations served, and the way in from the other side."""
