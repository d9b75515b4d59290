"""The fault matrix: each row on real processes, a measured figure beside its criterion."""
