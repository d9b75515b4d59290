"""The model folder in the hub's format: weights, tokenizer, manifest, model card."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3ForCausalLM

from scripts.train.card import write_card
from scripts.train.checkpoint import Progress
from scripts.train.presets import Preset

WEIGHTS_NAME = "model.safetensors"
MANIFEST_NAME = "training.json"


def export(
    folder: Path,
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    preset: Preset,
    progress: Progress,
    corpus: dict[str, object],
) -> None:
    """Write the model in bfloat16 into `folder`, each file replaced whole, the manifest last."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        staging = Path(temporary)
        rounded = copy.deepcopy(model).to("cpu", torch.bfloat16)
        rounded.generation_config = GenerationConfig(
            eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
        )
        rounded.save_pretrained(staging)
        tokenizer.model_max_length = model.config.max_position_embeddings
        tokenizer.save_pretrained(staging)
        manifest = build_manifest(staging, model, preset, progress, corpus)
        text = json.dumps(manifest, indent=2) + "\n"
        (staging / MANIFEST_NAME).write_text(text, encoding="utf-8")
        names = sorted(path.name for path in staging.iterdir())
        for name in sorted(names, key=lambda name: name == MANIFEST_NAME):
            (staging / name).chmod(0o644)
            os.replace(staging / name, folder / name)
    write_card(folder)


def build_manifest(
    folder: Path,
    model: Qwen3ForCausalLM,
    preset: Preset,
    progress: Progress,
    corpus: dict[str, object],
) -> dict[str, Any]:
    """What was trained, how, on what, and the digests of the files in `folder`."""
    run = dataclasses.asdict(progress)
    run["wall_seconds"] = round(progress.wall_seconds)
    return {
        "model": {
            "architecture": "Qwen3ForCausalLM",
            "parameter_count": sum(parameter.numel() for parameter in model.parameters()),
            "weights_sha256": file_sha256(folder / WEIGHTS_NAME),
            "tokenizer_sha256": file_sha256(folder / "tokenizer.json"),
        },
        "corpus": {
            "source": f"the standard library of Python {platform.python_version()}",
            "licence": "PSF-2.0",
            **corpus,
        },
        "run": run,
        "preset": dataclasses.asdict(preset),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "numpy": np.__version__,
        },
        "machine": machine(),
    }


def machine() -> dict[str, object]:
    """The processor that this runs on and the threads that torch uses on it."""
    described = Path("/proc/cpuinfo")
    lines = described.read_text(encoding="utf-8").splitlines() if described.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
