"""How busy the device is that computes on torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import structlog
import torch

from kakeya_fleet.engine.backends.torch_backend.device import device_called
from kakeya_fleet.engine.contracts.device import CUDA

_log = structlog.get_logger(__name__)


def device_use(name: str) -> Callable[[], float | None]:
    """What reads the share of the time in which a device had work of any program, 0 to 1.

    Over its driver's latest period, a sixth of a second to one second
    (nvmlDeviceGetUtilizationRates). It reads None where nothing is told: of the processor, of
    Metal, and of CUDA without pynvml, which the package nvidia-ml-py brings. Opens the driver's
    library. `device_called` says what is raised.
    """
    device = device_called(name)
    if device.kind != CUDA:
        return _untold
    try:
        faults = (importlib.import_module("pynvml").NVMLError, RuntimeError, ImportError)
    except ImportError:
        return _untold
    is_told = True

    def read() -> float | None:
        nonlocal is_told
        if not is_told:
            return None
        try:
            return float(torch.cuda.utilization(device.place)) / 100
        except faults as error:
            # A part of a device (MIG) has no such figure: it is asked for no more.
            is_told = False
            _log.info("device_use_not_told", device=device.name, cause=str(error))
            return None

    read()
    return read


def _untold() -> None:
    """Nobody tells."""
