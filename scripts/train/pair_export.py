"""The drafter's folder in DFlash's format, with its manifest and, where there is one, f_theta."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import platform
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from kakeya_fleet.engine.backends.dflash.config import ARCHITECTURE, read_config
from kakeya_fleet.engine.backends.dflash.version_2 import ARCHITECTURE_2, VERSION_2, Version2
from kakeya_fleet.engine.backends.torch_backend.dflash import load_encoder
from kakeya_fleet.engine.backends.torch_backend.projection import Projection, save_projection
from kakeya_fleet.engine.models.digests import tokenizer_digest, weights_digest
from scripts.train.checkpoint import Progress
from scripts.train.drafter_model import Drafter, DrafterShape
from scripts.train.pair_card import write_card
from scripts.train.prompts import ASKED
from scripts.train.rows import read_rows

CONFIG, WEIGHTS, MANIFEST, RESTORER = (
    "config.json",
    "model.safetensors",
    "training.json",
    "restorer",
)


def export_pair(
    options: argparse.Namespace,
    target: PreTrainedModel,
    drafter: Drafter,
    projection: Projection | None,
    progress: Progress,
) -> None:
    """Write what was trained into `options.export`, weights in bfloat16, the manifest last."""
    folder: Path = options.export
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        staging = Path(temporary)
        write_drafter(staging, drafter, target)
        if projection is not None:
            digest = load_encoder(staging).spec.digest
            config = dataclasses.replace(projection.config, encoder_digest=digest)
            projection.config = config
            save_projection(projection, staging / RESTORER, torch.bfloat16)
        files = sorted(path for path in staging.rglob("*") if path.is_file())
        manifest = _manifest(options, drafter, projection, progress)
        manifest["files"] = {path.relative_to(staging).as_posix(): _sha256(path) for path in files}
        for path in files:
            to = folder / path.relative_to(staging)
            to.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, to)
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    write_card(folder, manifest)


def write_drafter(folder: Path, drafter: Drafter, target: PreTrainedModel) -> None:
    """Config and weights of DFlash's format, of the drafter's version."""
    shape = drafter.shape
    config = {
        "architectures": [ARCHITECTURE if shape.version_2 is None else ARCHITECTURE_2],
        "model_type": "qwen3",
        "attention_bias": False,
        "block_size": shape.block_size,
        "dflash_config": {
            "mask_token_id": shape.mask_token,
            "target_layer_ids": list(shape.taps),
            **({} if shape.version_2 is None else _entries_2(shape.version_2)),
        },
        "dtype": "bfloat16",
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "is_causal": False,
        "layer_types": ["full_attention"] * shape.layers,
        "max_position_embeddings": target.config.max_position_embeddings,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "num_target_layers": target.config.num_hidden_layers,
        "rms_norm_eps": shape.norm_eps,
        "rope_parameters": {"rope_theta": shape.rope_theta, "rope_type": "default"},
        "sliding_window": None,
        "tie_word_embeddings": True,
        "vocab_size": target.config.vocab_size,
    }
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tensors = {
        name: tensor.detach().to("cpu", torch.bfloat16).contiguous()
        for name, tensor in drafter.state_dict().items()
    }
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def _entries_2(version_2: Version2) -> dict[str, int]:
    convolution, selector = version_2.convolution, version_2.selector
    values = (convolution.taps, convolution.group_size, selector.rank, selector.top_k)
    return dict(zip(VERSION_2, values, strict=True))


def load_drafter(folder: Path) -> Drafter:
    """The drafter in `folder`, as it is trained."""
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    own = config["dflash_config"]
    drafter = Drafter(
        DrafterShape(
            hidden=config["hidden_size"],
            intermediate=config["intermediate_size"],
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            kv_heads=config["num_key_value_heads"],
            head_dim=config["head_dim"],
            block_size=config["block_size"],
            taps=tuple(own["target_layer_ids"]),
            mask_token=own["mask_token_id"],
            rope_theta=config["rope_parameters"]["rope_theta"],
            norm_eps=config["rms_norm_eps"],
            version_2=read_config(folder).version_2,
            vocabulary=config["vocab_size"],
        )
    )
    tensors = {name: tensor.float() for name, tensor in load_file(folder / WEIGHTS).items()}
    drafter.load_state_dict(tensors)
    return drafter


def _manifest(
    options: argparse.Namespace,
    drafter: Drafter,
    projection: Projection | None,
    progress: Progress,
) -> dict[str, object]:
    rows = sorted(options.rows.glob("rows-*.npz"))
    shape = drafter.shape
    return {
        "kind": "dflash",
        "version": 1 if shape.version_2 is None else 2,
        "block_size": drafter.shape.block_size,
        "target": {
            "model_id": options.target.name,
            "weights_digest": weights_digest(options.target),
            "tokenizer_digest": tokenizer_digest(options.target),
        },
        "parameters": {
            "drafter": sum(p.numel() for p in drafter.parameters()),
            "restorer": sum(p.numel() for p in projection.parameters()) if projection else 0,
        },
        "training": {
            "train": options.train,
            "seed": options.seed,
            "steps": progress.step,
            "planned_steps": progress.planned_steps,
            "tokens": progress.tokens,
            "wall_seconds": round(progress.wall_seconds),
            "threads": progress.threads,
            "resumes": progress.resumes,
            "device": options.device,
            "corpus_sha256": progress.corpus_sha256,
            **_answers(options.rows),
            "begun_with": _weights_of(options.drafter),
            "map_begun_with": _weights_of(options.restorer),
            "as_version_1": options.as_version_1,
            "rate_share": options.rate_share,
            "shape": _shape_words(shape),
            "row_files": {path.name: _sha256(path) for path in rows},
            "draft_rows": options.draft_rows,
            "blocks": options.blocks,
            "restore_rows": options.restore_rows,
            "restore_lengths": list(options.restore_lengths),
            "windows": list(options.windows),
            "recall_share": options.recall_share,
            "recall_facts": options.recall_facts,
            "repeat_share": options.repeat_share,
            "restore_weight": options.restore_weight,
            "gap_weight": options.gap_weight,
            "reconstruct_share": options.reconstruct_share,
            "source": str(options.source),
            "rank": options.rank,
            "figures": progress.figures,
        },
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "processor": platform.processor() or platform.machine(),
    }


def _answers(folder: Path) -> dict[str, float]:
    """Tokens that answer prompts, 0 where rows are of one kind, and the share of prompts asked."""
    rows = read_rows(folder)
    if not rows.kinds.any():
        return {"answer_tokens": 0, "asked_share": 0.0}
    tokens = int((rows.lengths - rows.prompts).sum())
    return {"answer_tokens": tokens, "asked_share": float((rows.kinds == ASKED).mean())}


def _shape_words(shape: DrafterShape) -> str:
    """The options of `scripts.train.pair` that make a drafter of this shape."""
    words = [
        f"--layers {shape.layers} --intermediate {shape.intermediate}",
        f"--block-size {shape.block_size} --taps {' '.join(map(str, shape.taps))}",
    ]
    if shape.version_2 is not None:
        convolution, selector = shape.version_2.convolution, shape.version_2.selector
        words.append(
            f"--version 2 --conv-taps {convolution.taps} --conv-group {convolution.group_size}"
            f" --selector-rank {selector.rank}"
        )
    return " ".join(words)


def _weights_of(folder: Path | None) -> str | None:
    """Which weights a folder has, None without one."""
    return None if folder is None else _sha256(folder / WEIGHTS)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
