"""Wheels of this tree under other versions, and an environment that one is installed in."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILT = ("kakeya_fleet", "kakeya")
BUILD_SECONDS = 60.0
BUILD = """
import zlib
zlib.Z_DEFAULT_COMPRESSION = 0
from hatchling.cli import hatchling
hatchling()
"""
"""Nothing is compressed: of the shipped weights that takes seconds of a processor."""


def build(folder: Path) -> str:
    """Builds both distributions into the folder; their version."""
    environment = os.environ | {"KAKEYA_WHEEL_WITHOUT_DASHBOARD": "1"}
    for project in (ROOT, ROOT / "sdks" / "python"):
        subprocess.run(
            [sys.executable, "-c", BUILD, "build", "-t", "wheel", "-d", str(folder)],
            cwd=project,
            env=environment,
            check=True,
            capture_output=True,
            timeout=BUILD_SECONDS,
        )
    (wheel,) = folder.glob("kakeya_fleet-*.whl")
    return wheel.name.split("-")[1]


def derive(
    folder: Path,
    built: str,
    version: str,
    others: Mapping[str, tuple[str, str]] | None = None,
    *,
    left_out: str = "/shipped/",
) -> None:
    """The wheels of version `built` as `version`; `others`: what of a file reads otherwise.

    What has `left_out` in its path is left out: the shipped weights, which few read.
    """
    for name in BUILT:
        source = folder / f"{name}-{built}-py3-none-any.whl"
        target = folder / f"{name}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(source) as before, zipfile.ZipFile(target, "w") as after:
            kept = [each for each in before.namelist() if not left_out or left_out not in each]
            names = {
                each: each.replace(f"-{built}.dist-info", f"-{version}.dist-info") for each in kept
            }
            for each, new in names.items():
                if each.endswith(".dist-info/RECORD"):
                    content = "".join(f"{line},,\n" for line in names.values()).encode()
                elif each.endswith((".dist-info/METADATA", "kakeya_fleet/__init__.py")):
                    content = before.read(each).replace(built.encode(), version.encode())
                else:
                    content = before.read(each)
                if others and each in others:
                    old, other = others[each]
                    assert old.encode() in content
                    content = content.replace(old.encode(), other.encode())
                after.writestr(new, content)


def environment_with(folder: Path, wheels: Path, version: str) -> Path:
    """The interpreter of a new environment in `folder` that has `version` installed.

    Everything else is this interpreter's own, by a .pth file.
    """
    venv.create(folder, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    site = folder / "lib" / site.parent.name / "site-packages"
    for name in BUILT:
        with zipfile.ZipFile(wheels / f"{name}-{version}-py3-none-any.whl") as wheel:
            wheel.extractall(site)
    (site / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return folder / "bin" / "python"
