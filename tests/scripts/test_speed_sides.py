"""What compares speeds: sides take turns, rivals read the same weights, a picture is drawn."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize
from safetensors.torch import load_file

from scripts.bench.decode_models import random_checkpoint
from scripts.bench.mlx_server import first_token, loaded, steps
from scripts.bench.prompts import over_fastest
from scripts.bench.random_gguf import write_random
from scripts.bench.speed_sides import PROMPT, Side, measured, shorter_prompts
from scripts.plot.looks import begin
from scripts.plot.published_speed import draw
from scripts.write.figures_tables import published_speeds

TINY = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "vocab_size": 320,
}
REPORT = Path(__file__).resolve().parents[2] / "benchmarks" / "published_speed.json"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return random_checkpoint("Qwen3-0.6B", "bfloat16", tmp_path, **TINY)


def test_sides_take_turns_and_the_first_round_is_none() -> None:
    asked = []

    def side(name: str, speed: float, prompt_tokens: int = PROMPT) -> Side:
        def call() -> float:
            asked.append(name)
            return speed

        return Side(call, call, prompt_tokens=prompt_tokens)

    found = {"fast": side("fast", 2.0), "slow": side("slow", 1.0, 16)}
    told = measured(found, 2, what=("prefill", "together"))
    assert asked == ["fast", "slow"] * 3
    assert told["fast"] == {"prefill": {"median": 2.0, "rounds": [2.0, 2.0]}}
    assert shorter_prompts(found) == {"slow": 16}


def test_a_goal_is_over_the_fastest_rival() -> None:
    tokens = {
        name: {"prefill": {"median": speed}}
        for name, speed in (("kakeya", 3.0), ("one", 1.5), ("another", 2.0))
    }
    assert over_fastest(tokens) == 1.5


def test_a_shorter_prompt_is_told_in_the_table() -> None:
    report = {
        "tokens_per_second": {"mlx-lm 4 bits": {"prefill": {"median": 0.52}}},
        "shorter_prompts": {"mlx-lm 4 bits": 16},
    }
    assert published_speeds(report) == ["| mlx-lm 4 bits |  | 0.5 (16) |  |"]


def test_a_random_gguf_has_the_checkpoints_weights(checkpoint: Path, tmp_path: Path) -> None:
    write_random(checkpoint, tmp_path / "random.gguf", GGMLQuantizationType.BF16)
    reader = gguf.GGUFReader(tmp_path / "random.gguf")
    own = load_file(checkpoint / "model.safetensors")
    names = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
    }
    found = {each.name: dequantize(each.data, each.tensor_type) for each in reader.tensors}
    assert len(found) == len(own)
    for name, of in names.items():
        assert np.array_equal(found[name], own[of].to(torch.float32).numpy())
    assert reader.fields["qwen3.block_count"].contents() == TINY["num_hidden_layers"]
    assert len(reader.fields["tokenizer.ggml.tokens"].contents()) == TINY["vocab_size"]


@pytest.mark.parametrize("bits", [0, 8, 4])
def test_mlx_steps_and_prompts_are_timed(checkpoint: Path, bits: int) -> None:
    model = loaded(checkpoint, bits)
    assert first_token(model, [1, 2, 3]) > 0.0
    taken = steps(model, 8, 2)
    assert len(taken) == 2
    assert min(taken) > 0.0


def test_the_picture_is_drawn_of_what_was_measured(tmp_path: Path) -> None:
    report = json.loads(REPORT.read_text())
    begin()
    draw(report, tmp_path / "picture.svg")
    text = (tmp_path / "picture.svg").read_text()
    assert "svg" in text
    assert len(text) > 1000
