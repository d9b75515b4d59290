"""How this installation came here, and so which installer may change it."""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import Distribution, distribution
from importlib.util import find_spec
from pathlib import Path

from kakeya_fleet.node.cli.shell.failure import CommandFailed

NAME = "kakeya-fleet"


class Installer(StrEnum):
    """What put the distribution into its environment."""

    UV_TOOL = "uv tool"
    PIPX = "pipx"
    PIP = "pip"
    UV = "uv"


@dataclass(frozen=True, slots=True)
class Installation:
    """One environment that `fleet` runs from. `extras` are those that were asked for."""

    installer: Installer
    interpreter: str
    prefix: Path
    version: str
    extras: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    """Requirements that were installed along, of `uv tool install --with`."""

    def requirement(self, version: str) -> str:
        """What an installer is asked for; an empty `version` is the newest."""
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{NAME}{extras}{f'=={version}' if version else ''}"


def installation_here() -> Installation:
    """The one that runs. Raises `CommandFailed` (UPGRADE_UNSUPPORTED) for one of no installer."""
    found = distribution(NAME)
    checkout = _checkout(found)
    if checkout:
        raise _unsupported(f"it is the checkout {checkout}", "`git pull`, then `make setup` there")
    prefix = Path(sys.prefix)
    facts = (sys.executable, prefix, found.version)
    if (receipt := prefix / "uv-receipt.toml").is_file():
        extras, beside = _of_receipt(receipt)
        return Installation(Installer.UV_TOOL, *facts, extras, beside)
    if (metadata := prefix / "pipx_metadata.json").is_file():
        return Installation(Installer.PIPX, *facts, _of_pipx(metadata))
    if sys.prefix == sys.base_prefix:
        raise _unsupported(
            f"it is in the system's own Python, {prefix}",
            "install it into a virtual environment, or with `uv tool` or `pipx`",
        )
    extras = _present_extras(found)
    if find_spec("pip") is not None:
        return Installation(Installer.PIP, *facts, extras)
    if shutil.which("uv"):
        return Installation(Installer.UV, *facts, extras)
    raise _unsupported(
        f"{prefix} has no pip, and uv is not on the PATH", "install uv, then try again"
    )


def _unsupported(cause: str, mend: str) -> CommandFailed:
    return CommandFailed(
        "UPGRADE_UNSUPPORTED", f"this installation cannot be upgraded, {cause}: {mend}."
    )


def _checkout(found: Distribution) -> str:
    """The folder of an editable installation; empty for any other."""
    try:
        facts = json.loads(found.read_text("direct_url.json") or "{}")
        return str(facts["url"]) if facts.get("dir_info", {}).get("editable") else ""
    except (ValueError, KeyError, AttributeError):
        return ""


def _of_receipt(receipt: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Extras, and requirements beside, that `uv tool install` noted."""
    try:
        asked = tomllib.loads(receipt.read_text("utf-8"))["tool"]["requirements"]
        own = next(each for each in asked if each["name"] == NAME)
        beside = tuple(
            f"{each['name']}{each.get('specifier', '')}" for each in asked if each is not own
        )
        return tuple(own.get("extras", ())), beside
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        raise _unsupported(
            f"{receipt} cannot be read ({error})", f"`uv tool install --force {NAME}`"
        ) from error


def _of_pipx(metadata: Path) -> tuple[str, ...]:
    """Extras that `pipx install` noted."""
    try:
        asked = str(json.loads(metadata.read_text("utf-8"))["main_package"]["package_or_url"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unsupported(
            f"{metadata} cannot be read ({error})", f"`pipx install --force {NAME}`"
        ) from error
    _, bracket, rest = asked.partition("[")
    extras = rest.partition("]")[0] if bracket else ""
    return tuple(each.strip() for each in extras.split(",") if each.strip())


def _present_extras(found: Distribution) -> tuple[str, ...]:
    """Extras whose first library is there: no installer notes what was asked for in a venv."""
    marks = {"torch": "torch", "mlx": "mlx", "traces": "opentelemetry"}
    offered = found.metadata.get_all("Provides-Extra") or []
    return tuple(each for each in offered if each in marks and find_spec(marks[each]) is not None)
