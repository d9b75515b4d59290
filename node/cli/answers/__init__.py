"""Commands that generate: `generate`, `verify`, `bench`."""
