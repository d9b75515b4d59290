"""How `fleet join` tells what stops a node: the errors of every room, in a sentence each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kakeya_fleet.node.cli.shell.failure import CommandFailed, ExitCode

NO_RETRY_MENDS = frozenset({"BAD_CONFIG", "INSECURE_BIND", "LOOPBACK_BIND", "BAD_ROLE_SPEC"})
"""Reasons that a person must mend first: whoever restarts nodes need not try again."""


@contextmanager
def told_as_failures() -> Iterator[None]:
    """Raises `CommandFailed` for what stops a node, or keeps it from being one."""
    from kakeya_fleet.engine.errors import EngineError
    from kakeya_fleet.fleet.errors import FleetError
    from kakeya_fleet.node.cli.shell.remedies import sentence
    from kakeya_fleet.node.errors import NodeError
    from kakeya_fleet.node.rpc.refusals import Refusal

    try:
        yield
    except (NodeError, EngineError, FleetError, Refusal) as error:
        code = ExitCode.USAGE if error.reason in NO_RETRY_MENDS else ExitCode.FLEET_ERROR
        raise CommandFailed(
            error.reason, sentence(str(error)), metadata=error.metadata, exit_code=code
        ) from error
