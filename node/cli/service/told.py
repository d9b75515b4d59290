"""A service in words and as JSON."""

from __future__ import annotations

from kakeya_fleet.node.cli.service.found import FoundService
from kakeya_fleet.node.cli.service.manager import Condition, ServiceManager, State

_WORDS = {
    State.RUNNING: "is running",
    State.STARTING: "is starting: it loads what it serves",
    State.STOPPING: "is stopping: running answers end",
    State.FAILING: "fails, and is started again",
    State.FAILED: "has failed, and is not started again",
    State.STOPPED: "is stopped",
}


def facts_of(manager: ServiceManager, service: FoundService) -> dict[str, object]:
    """For programs."""
    condition = service.condition
    return {
        "name": service.name,
        "state": condition.state.value,
        "address": service.address,
        "process_id": condition.process_id,
        "restart_count": condition.restart_count,
        "detail": condition.detail,
        "manager": manager.kind,
        "file": str(service.file),
        "config_file": str(service.config_file),
        "log_file": service.log_file,
        "log_command": "" if service.log_file else manager.log_command(service.name),
    }


def lines_of(manager: ServiceManager, service: FoundService) -> list[str]:
    """For people."""
    facts = {
        "service": service.file,
        "config": service.config_file,
        "log": service.log_file or manager.log_command(service.name),
    }
    head = f"{service.name} {_state(service.condition, service.address)}"
    return [head, *(f"  {title:<8}  {fact}" for title, fact in facts.items())]


def _state(condition: Condition, address: str) -> str:
    words = _WORDS[condition.state]
    if condition.state is State.RUNNING and address:
        words += f" at {address}"
    elif condition.detail and condition.state is not State.RUNNING:
        words += f" ({condition.detail})"
    if condition.process_id:
        words += f", process {condition.process_id}"
    if condition.restart_count:
        times = "once" if condition.restart_count == 1 else f"{condition.restart_count} times"
        words += f", restarted {times}"
    return words
