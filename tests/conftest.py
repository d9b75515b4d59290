"""Small random checkpoints, and verifiers and draft sources made for tests, for every room."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

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
    # No token ends a text.
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
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
    # Most rooms' tests load no model: these take seconds to import.
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415
    from tokenizers import Tokenizer, models  # noqa: PLC0415

    model_class = getattr(transformers, architecture)
    options = TINY | config
    if architecture == "Qwen2ForCausalLM":
        options.pop("head_dim")
    if architecture == "MistralForCausalLM":
        options.setdefault("sliding_window", None)
    torch.manual_seed(seed)
    model = model_class(model_class.config_class(**options))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:  # norms and biases, which are ones and zeros so far
                parameter.add_(torch.randn_like(parameter), alpha=0.2)
    model.save_pretrained(folder, max_shard_size="20KB" if shards else "1GB")
    vocabulary = {f"t{index}": index for index in range(TINY["vocab_size"])}
    Tokenizer(models.WordLevel(vocabulary, unk_token="t0")).save(str(folder / "tokenizer.json"))
    return folder


def _load(name: str) -> ModuleType:
    """A module beside the engine's tests, which cannot be imported by name."""
    full_name = f"engine_room_{name}"
    if full_name not in sys.modules:
        path = Path(__file__).parent / "engine" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(full_name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[full_name] = module
        spec.loader.exec_module(module)
    return sys.modules[full_name]


@pytest.fixture(scope="session")
def hashing() -> ModuleType:
    """A verifier without weights and the stream that it must produce."""
    return _load("hash_verifier")


@pytest.fixture(scope="session")
def sources() -> ModuleType:
    """Draft sources of every character, and runners of a verifier's steps."""
    return _load("draft_sources")


@pytest.fixture(scope="session")
def streams() -> ModuleType:
    """Runs generations and checks the shape of what they yield."""
    return _load("streams")
