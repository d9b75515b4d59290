"""The command that installs a version, for each installer, and the old version kept at hand."""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from kakeya_fleet.node.cli.shell.failure import CommandFailed
from kakeya_fleet.node.cli.upgrade.installation import NAME, Installation, Installer

OWN = (NAME, "kakeya")
"""The distributions that are released together, of one version."""
INSTALL_SECONDS = 3600.0
"""torch is two gigabytes, and some lines are slow."""
# Made at installation, by the installer: no part of a wheel.
_NOT_IN_WHEELS = {"INSTALLER", "REQUESTED", "direct_url.json"}


def install_words(
    found: Installation, version: str, folders: Sequence[Path] = ()
) -> tuple[str, ...]:
    """The installer's command; an empty `version` is the newest, `folders` have wheels too."""
    links = [word for folder in folders for word in ("--find-links", str(folder))]
    wanted = found.requirement(version)
    match found.installer:
        case Installer.UV_TOOL:
            along = [word for each in found.beside for word in ("--with", each)]
            words = ["uv", "tool", "install", "--force", "--upgrade", wanted, *along]
        case Installer.PIPX:
            words = ["pipx", "runpip", found.prefix.name, "install", "--upgrade", wanted]
        case Installer.UV:
            words = ["uv", "pip", "install", "--python", found.interpreter, "--upgrade", wanted]
        case Installer.PIP:
            pip = [found.interpreter, "-m", "pip", "--disable-pip-version-check"]
            words = [*pip, "install", "--upgrade", wanted]
    return (*words, *links)


def install(words: Sequence[str]) -> None:
    """Runs the installer. Raises `CommandFailed` (UPGRADE_FAILED) with its last words."""
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandFailed("UPGRADE_FAILED", f"`{' '.join(words)}` failed: {error}") from error
    if done.returncode:
        said = " ".join(" ".join(done.stdout.splitlines()[-3:]).split())
        raise CommandFailed(
            "UPGRADE_FAILED",
            f"`{' '.join(words)}` failed with exit code {done.returncode}: {said}",
            metadata={"command": " ".join(words), "exit_code": str(done.returncode)},
        )


def keep_wheels(folder: Path) -> None:
    """Packs what is installed of this version into wheels again, which no index need have.

    A wheel is a zip of the files that RECORD lists (the binary distribution format of PyPA);
    what the installer made besides, scripts among it, it makes anew of the wheel.
    """
    for name in OWN:
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        tag = f"{name.replace('-', '_')}-{found.version}-py3-none-any.whl"
        kept = [
            file
            for file in found.files or ()
            if ".." not in file.parts
            and "__pycache__" not in file.parts
            and file.name not in _NOT_IN_WHEELS
        ]
        with zipfile.ZipFile(folder / tag, "w", zipfile.ZIP_STORED) as wheel:
            for file in kept:
                if file.name != "RECORD":
                    wheel.write(str(file.locate()), str(file))
            record = next(file for file in kept if file.name == "RECORD")
            names = {str(file) for file in kept}
            lines = record.read_text().splitlines(keepends=True)
            own = [line for line in lines if line.split(",")[0].strip('"') in names]
            wheel.writestr(str(record), "".join(own))
