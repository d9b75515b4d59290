"""Small random checkpoints in the hub's format, for every room that loads models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

TINY = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 1024,
    # Wide enough that logits and attention are far from uniform.
    "initializer_range": 0.25,
}


@pytest.fixture(scope="session")
def random_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes the folder of a random model: (architecture, seed=0, shards=False, **config)."""
    made: dict[str, Path] = {}

    def make(
        architecture: str = "Qwen3ForCausalLM",
        *,
        seed: int = 0,
        shards: bool = False,
        **config: object,
    ) -> Path:
        key = repr((architecture, seed, shards, sorted(config.items(), key=str)))
        if key not in made:
            made[key] = _save(
                tmp_path_factory.mktemp("checkpoint"), architecture, seed, shards, config
            )
        return made[key]

    return make


def _save(
    folder: Path, architecture: str, seed: int, shards: bool, config: dict[str, object]
) -> Path:
    import torch
    import transformers
    from tokenizers import Tokenizer, models

    model_class = getattr(transformers, architecture)
    options = TINY | config
    if architecture == "Qwen2ForCausalLM":
        options.pop("head_dim")
    if architecture == "MistralForCausalLM":
        options.setdefault("sliding_window", None)
    torch.manual_seed(seed)
    model = model_class(model_class.config_class(**options))
    model.save_pretrained(folder, max_shard_size="20KB" if shards else "1GB")
    vocabulary = {f"t{index}": index for index in range(TINY["vocab_size"])}
    Tokenizer(models.WordLevel(vocabulary, unk_token="t0")).save(str(folder / "tokenizer.json"))
    return folder
