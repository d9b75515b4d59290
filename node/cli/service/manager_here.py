"""Which service manager this machine has."""

from __future__ import annotations

import platform
from collections.abc import Mapping

from kakeya_fleet.node.cli.service.launchd import Launchd
from kakeya_fleet.node.cli.service.manager import ServiceManager
from kakeya_fleet.node.cli.service.systemd import Systemd


def manager_here(environment: Mapping[str, str]) -> ServiceManager:
    """The manager of this machine's user. Raises `CommandFailed` (SERVICE_UNSUPPORTED)."""
    return Launchd() if platform.system() == "Darwin" else Systemd.of(environment)
