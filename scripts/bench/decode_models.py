"""Random weights at the shapes of published models, for measuring speed and nothing else."""

from __future__ import annotations

import gc
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, models

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
SHAPES: dict[str, tuple[str, dict[str, object]]] = {
    "Qwen3-0.6B": (
        "Qwen3ForCausalLM",
        {
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "vocab_size": 151_936,
            "max_position_embeddings": 40_960,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
        },
    ),
    "Llama-3.2-1B": (
        "LlamaForCausalLM",
        {
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "vocab_size": 128_256,
            "max_position_embeddings": 131_072,
            "rms_norm_eps": 1e-5,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500_000.0,
                "factor": 32.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
        },
    ),
    "Gemma-3-270M": (
        "Gemma3ForCausalLM",
        {
            "hidden_size": 640,
            "intermediate_size": 2048,
            "num_hidden_layers": 18,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 256,
            "query_pre_attn_scalar": 256,
            "sliding_window": 512,
            "vocab_size": 262_144,
            "max_position_embeddings": 32_768,
            "rms_norm_eps": 1e-6,
        },
    ),
}
"""Architecture and config by name. All tie the head to the embeddings."""

COMMON: dict[str, object] = {
    "tie_word_embeddings": True,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


@dataclass(frozen=True, slots=True)
class KvGeometry:
    """Keys and values of a model of full-attention layers, `item_bytes` a number."""

    layers: int
    kv_heads: int
    head_dim: int
    item_bytes: int

    @property
    def bytes_per_token(self) -> int:
        """Of one position, all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.item_bytes


def kv_geometry(folder: Path, dtype: str) -> KvGeometry:
    """That of the checkpoint in `folder` with K/V in `dtype`."""
    config = json.loads((folder / "config.json").read_bytes())
    return KvGeometry(
        layers=config["num_hidden_layers"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        item_bytes=DTYPES[dtype].itemsize,
    )


def weight_bytes(folder: Path) -> int:
    """Bytes of all weights, each of which a decoding step reads once.

    With a tied head the embedding table is read whole, as the head.
    """
    total = 0
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            header_bytes = 8 + int.from_bytes(file.read(8), "little")
        total += path.stat().st_size - header_bytes
    return total


def head_bytes(folder: Path) -> int:
    """Bytes of the head, which is the embedding table, in the dtype of the file."""
    config = json.loads((folder / "config.json").read_bytes())
    item_bytes = DTYPES[config["dtype"]].itemsize
    size: int = config["vocab_size"] * config["hidden_size"] * item_bytes
    return size


def random_checkpoint(name: str, dtype: str, parent: Path, *, seed: int = 0, **config: int) -> Path:
    """The folder, in the hub's format, of a random model at the shape `name`; reused if there.

    `config` replaces what the shape says.
    """
    architecture, options = SHAPES[name]
    folder = parent / "-".join([name, dtype, *(f"{key}-{config[key]}" for key in sorted(config))])
    if (folder / "tokenizer.json").is_file():
        return folder
    model_class = getattr(transformers, architecture)
    torch.manual_seed(seed)
    shape = model_class.config_class(**COMMON | options | config)
    model = transformers.AutoModelForCausalLM.from_config(shape, dtype=DTYPES[dtype])
    model.save_pretrained(folder)
    del model
    gc.collect()
    # The engine names a model by its tokenizer too; no text is ever encoded here.
    Tokenizer(models.WordLevel({"t0": 0}, unk_token="t0")).save(str(folder / "tokenizer.json"))
    return folder


@contextmanager
def checkpoint_folder(kept: Path | None) -> Iterator[Path]:
    """Where checkpoints are made: `kept`, or a folder that goes with the context."""
    if kept is not None:
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="kakeya-checkpoints-") as folder:
        yield Path(folder)
