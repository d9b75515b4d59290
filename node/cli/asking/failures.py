"""Errors of the fleet as a command tells them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kakeya import KakeyaError
from kakeya_fleet.node.cli.shell.failure import CommandFailed
from kakeya_fleet.node.cli.shell.remedies import with_remedy


@contextmanager
def told_as_failures() -> Iterator[None]:
    """Errors of the fleet leave as `CommandFailed`, each with its remedy."""
    try:
        yield
    except KakeyaError as error:
        raise failure_of(error) from error


def failure_of(error: KakeyaError) -> CommandFailed:
    """An error of the fleet as people are told of it."""
    message = with_remedy(error.reason, error.problem, error.mend)
    return CommandFailed(error.reason, message, metadata=error.metadata)
