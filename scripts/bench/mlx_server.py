"""mlx-lm on one folder, asked and answering in lines, in a process of its own.

    python -m scripts.bench.mlx_server FOLDER BITS

BITS is 0 for the folder's own numbers, else what mlx-lm quantizes them to, 64 a group. Each line of
standard input is {"prompt": ids}, answered by the seconds until the first token behind it, or
{"context": positions, "count": tokens}, answered by the seconds of each of so many single-token
steps. The context's keys and values are random numbers: that changes no times.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import islice
from pathlib import Path

import mlx.core as mx
from mlx import nn
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model, quantize_model

GROUP = 64
FIRST_TOKEN = 7


def loaded(folder: Path, bits: int) -> nn.Module:
    """The model, quantized where there are bits."""
    model, config = load_model(folder)
    if bits:
        model, _ = quantize_model(model, config, GROUP, bits)
        mx.eval(model.parameters())
    return model


def first_token(model: nn.Module, prompt: list[int]) -> float:
    """Seconds until the token behind the prompt."""
    began = time.perf_counter()
    next(iter(generate_step(mx.array(prompt), model, max_tokens=1)))
    return time.perf_counter() - began


def steps(model: nn.Module, context: int, count: int) -> list[float]:
    """Seconds of single-token steps; the first, which makes the cache grow, is dropped."""
    cache = make_prompt_cache(model)
    for layer, own in zip(model.layers, cache, strict=True):
        heads = layer.self_attn.n_kv_heads
        numbers = mx.random.normal((1, heads, context, layer.self_attn.rope.dims))
        numbers = numbers.astype(layer.input_layernorm.weight.dtype)
        own.update_and_fetch(numbers, numbers)
        mx.eval(own.keys, own.values)
    found = []
    tokens = generate_step(mx.array([FIRST_TOKEN]), model, max_tokens=count + 1, prompt_cache=cache)
    began = time.perf_counter()
    for _ in islice(tokens, count + 1):
        found.append(time.perf_counter() - began)
        began = time.perf_counter()
    return found[1:]


def main() -> None:
    """Answers until standard input ends."""
    folder, bits = sys.argv[1:]
    model = loaded(Path(folder), int(bits))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        told = (
            {"seconds": first_token(model, asked["prompt"])}
            if "prompt" in asked
            else {"steps": steps(model, asked["context"], asked["count"])}
        )
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
