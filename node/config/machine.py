"""What the machine is: platform, memory, accelerator; read through psutil."""

from __future__ import annotations

import hashlib
import platform
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from kakeya_fleet.engine.backends import installed_backends
from kakeya_fleet.engine.contracts.device import AUTO, CPU, DeviceFacts
from kakeya_fleet.engine.memory import system_memory
from kakeya_fleet.fleet.cards.card import Accelerator

DTYPES = ("float32", "bfloat16")
"""What every back end computes in."""
HOST_ID_CHARACTERS = 32
# Other programs that digest the same name get another digest.
_HOST_SALT = b"kakeya host 1\0"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Machine:
    """What does not change while a node runs. `platform` is "linux/x86_64".

    `host_id` is that of every node on the same running kernel, thus of all that share its
    memory, containers too; empty where the kernel does not tell.
    """

    platform: str
    accelerator: Accelerator
    memory_total_bytes: int
    host_id: str = ""


def machine(device: DeviceFacts | None = None, backend: str = AUTO) -> Machine:
    """What runs this process. Starts a short process on macOS; never imports a tensor library.

    `device` is what is known of the one that was asked for by name; without it the back end
    that is asked for takes its own.
    """
    return Machine(
        platform=f"{platform.system().lower()}/{platform.machine().lower()}",
        accelerator=_accelerator(backend) if device is None else _named(device),
        memory_total_bytes=system_memory.total_bytes(),
        host_id=host_id_of(_boot_name()),
    )


def seconds_since_boot() -> float:
    """A clock that nobody sets; on Linux it goes on while the machine sleeps."""
    boot_clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot_clock is None else time.clock_gettime(boot_clock)


def process_started_at() -> float:
    """When this process was created, in seconds since 1970."""
    return float(psutil.Process().create_time())


def host_id_of(boot_name: str) -> str:
    """What a card calls a boot of a machine: a digest, as the name itself is nobody's business.

    Without a secret salt it can be compared with a known name, and not be read; empty for
    an empty name.
    """
    if not boot_name:
        return ""
    return hashlib.sha256(_HOST_SALT + boot_name.encode()).hexdigest()[:HOST_ID_CHARACTERS]


def _boot_name() -> str:
    """What the kernel calls this boot, a UUID; empty when it does not tell."""
    if platform.system() == "Darwin":
        return _sysctl("kern.bootsessionuuid")
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return ""


def _accelerator(backend: str) -> Accelerator:
    """What a back end of this installation computes with, whatever else is built in.

    The torch back end computes with the processor unless a device is asked for. MLX's
    wheels compute with the GPU on Apple silicon, with the processor elsewhere. All of them
    have the machine's memory.
    """
    installed = installed_backends()
    kind = CPU
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        kind = "metal" if "mlx" in installed and backend != "torch" else CPU
    return Accelerator(
        kind,
        processor_name(),
        system_memory.total_bytes(),
        system_memory.available_bytes(),
        DTYPES if installed else (),
    )


def _named(device: DeviceFacts) -> Accelerator:
    return Accelerator(
        device.kind,
        device.name or processor_name(),
        device.memory_total_bytes,
        device.memory_free_bytes,
        device.dtypes,
    )


def processor_name() -> str:
    """Its maker's name for people."""
    if platform.system() == "Darwin":
        return _processor_of_macos()
    return _field(Path("/proc/cpuinfo"), "model name") or platform.machine()


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
    return _sysctl("machdep.cpu.brand_string") or platform.machine()


def _sysctl(name: str) -> str:
    """A value of macOS's kernel, empty when it cannot be read."""
    command = ["/usr/sbin/sysctl", "-n", name]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()
