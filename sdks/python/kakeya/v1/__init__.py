"""Stubs of the contract `kakeya.v1`, made by `make stubs`."""
