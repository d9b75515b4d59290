"""Methods of one object that a test replaces."""

from __future__ import annotations

from collections.abc import Callable


def replace_method(target: object, name: str, by: Callable[..., object]) -> None:
    """From now on `target` has `by` in place of its method; type checkers refuse an assignment."""
    assert callable(getattr(target, name)), f"{target!r} has no method {name}"
    setattr(target, name, by)
