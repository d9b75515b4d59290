"""`fleet upgrade`: a newer version in the place of this one, and services restarted with drain."""
