"""What computes a model: a processor or a graphics device, in words and bytes."""

from __future__ import annotations

from dataclasses import dataclass

AUTO = "auto"
"""What a back end takes by itself: Metal with MLX on Apple silicon, the processor elsewhere."""
CPU, CUDA, MPS = "cpu", "cuda", "mps"
DEVICES = (AUTO, CPU, CUDA, MPS)
"""What `--device` takes; all but `AUTO` are torch's."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What is known of the device that computes a verifier.

    `kind` is `cpu`, `cuda`, `mps` or `metal`; `name` is the driver's, or the processor's.
    `memory_total_bytes` are what this process may have there at most, `memory_free_bytes`
    what it could take when it was asked. `dtypes` are the number formats that it computes
    weights, keys and values in, `weights` what its products take weights as.
    """

    kind: str
    name: str
    memory_total_bytes: int
    memory_free_bytes: int
    dtypes: tuple[str, ...]
    weights: tuple[str, ...]
