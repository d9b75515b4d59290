"""`fleet top`."""
