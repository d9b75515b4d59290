"""Where what is trained on is put."""

from __future__ import annotations

import torch


def on_device(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """`tensor`, there, without waiting for what the device has to do before."""
    if torch.device(device).type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
