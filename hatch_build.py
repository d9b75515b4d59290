"""Puts the built dashboard into the wheel: `fleet dashboard` works where pip installed it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Where `fleet dashboard` looks for its files in an installed package.
PLACE = "kakeya_fleet/node/cli/fleet/dashboard_files"
PARTS = ("page", "server")
LEFT_OUT = "KAKEYA_WHEEL_WITHOUT_DASHBOARD"


class DashboardFiles(BuildHookInterface[Any]):
    """Fails when the dashboard is not built, unless it is left out on purpose."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """An editable install finds the files in the checkout."""
        if self.target_name != "wheel" or version == "editable" or os.environ.get(LEFT_OUT):
            return
        built = Path(self.root) / "dashboard" / "dist"
        for part in PARTS:
            if not (built / part).is_dir():
                raise FileNotFoundError(
                    f"{built / part} is not there, and the wheel carries the dashboard: run "
                    f"`make dashboard` first, or set {LEFT_OUT}=1 for a wheel without it"
                )
            build_data["force_include"][str(built / part)] = f"{PLACE}/{part}"
