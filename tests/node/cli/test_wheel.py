"""What is built to be installed has all that the commands need."""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

import psutil
import pytest

from kakeya_fleet.node.cli.fleet.dashboard_process import BUILT_FILES
from tests.support.patience import PATIENCE_SECONDS

ROOT = Path(__file__).parents[3]
built = pytest.mark.skipif(
    not (BUILT_FILES[-1] / "page").is_dir(), reason="the dashboard is not built: make dashboard"
)

# Nobody answers there: the page shows that, and the process lives.
NOBODY = "127.0.0.1:9"


def build(root: Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=root,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def files_of(site: Path) -> Path:
    return site / "kakeya_fleet" / "node" / "cli" / "fleet" / "dashboard_files"


@pytest.mark.wide
@built
def test_a_wheel_has_the_dashboard_its_licenses_and_the_shipped_models(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as files:
        files.extractall(site)
    landed = {folder.name for folder in site.iterdir() if folder.suffix != ".dist-info"}
    assert landed == {"kakeya_fleet"}
    for shipped in ("tiny", "tiny-dflash"):
        assert (
            site / "kakeya_fleet" / "engine" / "shipped" / shipped / "model.safetensors"
        ).is_file()
    for part in ("page", "server"):
        licenses = (files_of(site) / part / "LICENSES.md").read_text()
        assert "Permission is hereby granted" in licenses or "Apache License" in licenses
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "kakeya_fleet.node.cli",
            "dashboard",
            "--no-open",
            "--json",
            "--node",
            NOBODY,
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(site)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        (child,) = psutil.Process(process.pid).children()
        assert str(files_of(site)) in " ".join(child.cmdline())
        with urllib.request.urlopen(ready["url"], timeout=PATIENCE_SECONDS) as answer:
            assert b"Kakeya" in answer.read()
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_SECONDS)


def test_a_wheel_without_the_dashboard_is_refused_unless_it_is_asked_for(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "kakeya_fleet").mkdir(parents=True)
    (checkout / "kakeya_fleet" / "__init__.py").touch()
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    refused = build(checkout, tmp_path)
    assert refused.returncode != 0
    assert "make dashboard" in refused.stderr
    asked = build(checkout, tmp_path, KAKEYA_WHEEL_WITHOUT_DASHBOARD="1")
    assert asked.returncode == 0, asked.stderr
