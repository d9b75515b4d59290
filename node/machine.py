"""What the machine is: platform, memory, accelerator; read through psutil."""

from __future__ import annotations

import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil

from engine.backends import installed_backends
from fleet.card import Accelerator


@dataclass(frozen=True, slots=True)
class Machine:
    """What does not change while a node runs. `platform` is "linux/x86_64"."""

    platform: str
    accelerator: Accelerator
    memory_total_bytes: int


def machine() -> Machine:
    """What runs this process. Starts a short process on macOS; never imports a tensor library."""
    return Machine(
        platform=f"{platform.system().lower()}/{platform.machine().lower()}",
        accelerator=_accelerator(),
        memory_total_bytes=memory_total_bytes(),
    )


def memory_total_bytes() -> int:
    """Bytes of the machine's memory."""
    return int(psutil.virtual_memory().total)


def memory_free_bytes() -> int:
    """Bytes that processes can take now without swapping."""
    return int(psutil.virtual_memory().available)


def _accelerator() -> Accelerator:
    """What a back end of this installation computes with, whatever else is built in.

    The torch back end has no way to a device: it computes with the processor. MLX's
    wheels compute with the GPU on Apple silicon, with the processor elsewhere.
    """
    if platform.system() == "Darwin":
        on_gpu = platform.machine() == "arm64" and "mlx" in installed_backends()
        return Accelerator("metal" if on_gpu else "cpu", _processor_of_macos())
    return Accelerator("cpu", _field(Path("/proc/cpuinfo"), "model name") or platform.machine())


def _field(path: Path, name: str) -> str:
    """The value of the first "name : value" line, empty when there is none."""
    try:
        lines = path.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        key, separator, value = line.partition(":")
        if separator and key.strip() == name:
            return value.strip()
    return ""


def _processor_of_macos() -> str:
    command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return platform.machine()
    return answer.stdout.strip() or platform.machine()
