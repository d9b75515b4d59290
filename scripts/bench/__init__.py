"""Measurements: each writes a report under benchmarks/."""
