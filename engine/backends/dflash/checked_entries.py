"""Entries of a config that have to be numbers of some kind. All raise `ValueError` naming them."""

from __future__ import annotations

import math


def positive(name: str, value: object) -> int:
    """`value`, a whole number from 1 on."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is {value!r}, not a number from 1 on")
    return value


def index(name: str, value: object, end: int, end_name: str) -> int:
    """`value`, a whole number from 0 up to, and without, `end`, which `end_name` gives."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < end:
        raise ValueError(f"{name} has {value!r}, not a number from 0 to {end_name} {end}")
    return value


def real(name: str, value: object) -> float:
    """`value`, a positive number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {value!r}, not a number")
    if not (math.isfinite(value) and value > 0.0):
        raise ValueError(f"{name} is {value!r}, not finite and above 0")
    return float(value)


def flag(name: str, value: object) -> bool:
    """`value`, true or false."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}, not true or false")
    return value
