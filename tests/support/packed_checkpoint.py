"""MLX checkpoints whose matrices are packed, made of others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import mlx.core as mx


def quantize(source: Path, target: Path, bits: int, group: int) -> Path:
    """`source` as an MLX checkpoint with all matrices packed that can be; returns `target`."""
    shutil.copytree(source, target)
    weights = mx.load(str(source / "model.safetensors"))
    assert isinstance(weights, dict)
    packed: dict[str, mx.array] = {}
    for name, array in weights.items():
        if array.ndim == 2 and array.shape[1] % group == 0:
            stem = name.removesuffix("weight")
            parts = mx.quantize(array, group_size=group, bits=bits)
            packed |= dict(zip([name, stem + "scales", stem + "biases"], parts, strict=True))
        else:
            packed[name] = array
    mx.save_safetensors(str(target / "model.safetensors"), packed, {"format": "mlx"})
    config = json.loads((target / "config.json").read_bytes())
    config["quantization"] = {"bits": bits, "group_size": group}
    (target / "config.json").write_text(json.dumps(config))
    return target
