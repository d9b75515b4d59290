"""A service put in place: its files at once, its start watched, and all undone if it fails."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kakeya_fleet.node.cli.service.definition import Definition
from kakeya_fleet.node.cli.service.manager import Condition, ServiceManager, State
from kakeya_fleet.node.cli.shell.failure import CommandFailed
from kakeya_fleet.node.config.state_directory import unwritable, write_durable

START_SECONDS = 20.0
"""How long a start is watched: libraries and a small model take less, downloads go on alone."""
LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Placed:
    """What became of it: the files that are new or others than before, and how it is now."""

    changed: tuple[Path, ...]
    condition: Condition


def place(manager: ServiceManager, service: Definition, config: str) -> Placed:
    """Writes the configuration and the service's file, and starts it, unless all is so already.

    Raises `CommandFailed` (SERVICE_FAILED) and `StateUnwritable` when everything is again
    as it was.
    """
    wanted = {
        service.config_file: config.encode(),
        manager.file_of(service.name): manager.content_of(service),
    }
    before = {path: _content(path) for path in wanted}
    changed = tuple(path for path, content in wanted.items() if before[path] != content)
    condition = manager.condition(service.name)
    if not changed and condition.state in (State.RUNNING, State.STARTING):
        return Placed((), condition)
    try:
        for path in changed:
            _make_folder(path.parent)
            write_durable(path, wanted[path])
        return Placed(changed, started(manager, service.name))
    except CommandFailed as failure:
        undone = _put_back(manager, service, before)
        words = f"{failure.message.rstrip('.')}; {undone}."
        raise CommandFailed(failure.reason, words, metadata=failure.metadata) from failure
    except OSError as error:
        _put_back(manager, service, before)
        raise unwritable(Path(str(error.filename)), error) from error


def started(manager: ServiceManager, name: str, seconds: float = START_SECONDS) -> Condition:
    """Starts or restarts it, and waits until it runs; how it is then, loading still perhaps.

    A node that runs drains first. Raises `CommandFailed` (SERVICE_FAILED) when it fails.
    """
    run = manager.condition(name).run
    manager.start(name)
    deadline = time.monotonic() + seconds
    while True:
        condition = manager.condition(name)
        if condition.run == run and condition.state is State.STOPPING:
            # It drains, which has a time of its own.
            deadline = time.monotonic() + seconds
        elif _has_failed(condition):
            raise _failure(manager, name, condition)
        elif condition.run != run and condition.state is State.RUNNING:
            return condition
        if time.monotonic() > deadline:
            return condition
        time.sleep(LOOK_SECONDS)


def remove(manager: ServiceManager, name: str, files: Mapping[str, Path], seconds: float) -> None:
    """Stops the service, and removes its files. Raises `CommandFailed`, `StateUnwritable`."""
    manager.stop(name, seconds)
    for path in files.values():
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(path, error) from error
    manager.forget(name)


def _has_failed(condition: Condition) -> bool:
    again = condition.state is State.STARTING and condition.restart_count > 0
    return again or condition.state in (State.FAILED, State.FAILING)


def _failure(manager: ServiceManager, name: str, condition: Condition) -> CommandFailed:
    detail = condition.detail or " ".join(manager.last_words(name).split()) or "it ended"
    return CommandFailed(
        "SERVICE_FAILED",
        f"the service of {name} does not start: {detail}",
        metadata={"name": name},
    )


def _put_back(
    manager: ServiceManager, service: Definition, before: Mapping[Path, bytes | None]
) -> str:
    """Makes files and service as they were; what was undone, in words."""
    was_installed = before[manager.file_of(service.name)] is not None
    try:
        if not was_installed:
            manager.stop(service.name, service.stop_seconds)
        for path, content in before.items():
            if content is None:
                path.unlink(missing_ok=True)
            else:
                write_durable(path, content)
        if was_installed:
            manager.start(service.name)
            return "the service as it was before is started again"
        manager.forget(service.name)
    except (CommandFailed, OSError) as error:
        return (
            f"not all of it could be undone ({str(error).rstrip('.')}): see `fleet service status`"
        )
    with suppress(OSError):
        # One that was made for the configuration alone.
        service.state.rmdir()
    return "nothing is left of it: its files are removed again"


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unwritable(path, error) from error


def _make_folder(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
