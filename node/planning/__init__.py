"""Placement as a service: what is collected for the planner, and its plans on the wire."""
