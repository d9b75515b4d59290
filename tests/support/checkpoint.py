"""A tiny checkpoint with random weights, in the hub's format."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

VOCABULARY_SIZE = 96
POSITIONS = 4096
HEAD_SIZE = 32
POSITION_BYTES = 2 * 2 * HEAD_SIZE * 4
"""Of keys and values: two layers with a head each, float32."""


def make(folder: Path, positions: int = POSITIONS, *, head_size: int = HEAD_SIZE) -> Path:
    """Writes config, weights and tokenizer; returns the folder.

    Heads that are no multiple of 32 are computed by torch's operators, all others by the compiled
    decoder, as those of the models that people have.
    """
    config = Qwen3Config(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=head_size,
        max_position_embeddings=positions,
        tie_word_embeddings=False,
        # Large enough that the next token depends on the text.
        initializer_range=0.6,
    )
    torch.manual_seed(7)
    model = Qwen3ForCausalLM(config)
    model.save_pretrained(folder)
    vocabulary = {f"t{token_id}": token_id for token_id in range(VOCABULARY_SIZE)}
    tokenizer: dict[str, object] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "t0"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"})
    )
    return folder
