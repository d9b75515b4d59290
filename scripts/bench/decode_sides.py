"""The sides of the decoding benchmark: each decodes single tokens behind a given context.

The context is not prefilled: its keys and values are random numbers written
straight into each side's cache. Decoding takes as long with any numbers.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import mlx.core as mx
import torch
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model
from transformers import AutoModelForCausalLM, Cache, DynamicCache, PreTrainedModel, StaticCache

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.sampling.choice import GREEDY, choose_token
from kakeya_fleet.engine.verifiers.exactness import settle
from scripts.bench.decode_models import DTYPES, KvGeometry, kv_geometry, random_checkpoint
from scripts.bench.decode_timer import StepTimer, Ticking

FIRST_TOKEN = 7
PIECE = 1024
"""Positions written at a time, so that filling a cache needs little memory besides."""
MLX_DTYPES = {"bfloat16": mx.bfloat16, "float32": mx.float32}


MakeCache = Callable[[PreTrainedModel, int], Cache]

TWINS: dict[str, dict[str, int]] = {
    "torch": {"num_hidden_layers": 1},
    # Its products of many rows are slow on a CPU, and the head's would take hours.
    "mlx": {"num_hidden_layers": 1, "vocab_size": 1024},
}
"""Config of the model on which a back end's exact row counts are found; see `EngineSide`."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The folder of a model, and by back end that of its twin."""

    folder: Path
    twins: Mapping[str, Path]


def make_checkpoint(name: str, dtype: str, parent: Path, sides: Sequence[str]) -> Checkpoint:
    """Random weights at the shape `name`, and the twins that `sides` need."""
    twins = {
        backend: random_checkpoint(name, dtype, parent, **config)
        for backend, config in TWINS.items()
        if backend in sides
    }
    return Checkpoint(random_checkpoint(name, dtype, parent), twins)


class Side(Protocol):
    """A loaded model and its own way of decoding."""

    def decode(self, context: int, timer: Ticking) -> None:
        """Decodes greedily behind `context` positions until `timer` has enough."""
        ...

    def notes(self) -> dict[str, object]:
        """What the report says of it besides its speed."""
        ...


class EngineSide:
    """The engine: single-token forwards over a contiguous cache, tokens chosen as sessions do.

    Its forwards are restricted, as a node restricts them, to the row counts that
    are exact on this machine. Those are found on a twin of one such layer:
    rounding is a matter of shapes, and the check reads the weights hundreds of
    times.
    """

    def __init__(self, checkpoint: Checkpoint, dtype: str, backend: str) -> None:
        twin = load_verifier(_named(checkpoint.twins[backend]), backend=backend, dtype=dtype)
        self._backend = backend
        self._exactness = settle(twin)
        del twin
        free_memory()
        self._verifier = load_verifier(_named(checkpoint.folder), backend=backend, dtype=dtype)
        self._verifier.use_row_counts(self._exactness.row_counts)

    def notes(self) -> dict[str, object]:
        """See `Side`."""
        return {
            "exact": self._exactness.exact,
            "row_counts": list(self._exactness.row_counts),
            "found_on": TWINS[self._backend],
        }

    def decode(self, context: int, timer: Ticking) -> None:
        """See `Side`."""
        capacity = context + timer.most_steps
        spec = CacheSpec(CacheKind.CONTIGUOUS, capacity=capacity)
        cache = self._verifier.allocate(spec)
        cache.fill(context, seed=0)
        token = FIRST_TOKEN
        while True:
            logits = self._verifier.forward(cache, [token], want_logits=True)
            if logits is None:
                raise TypeError("a verifier that was asked for logits gave none")
            token = choose_token(logits[0], GREEDY, cache.length)
            cache.truncate(cache.length)
            if timer.tick():
                break
        cache.release()
        # The pool keeps what was given back; the next side needs the memory.
        self._verifier.pool.budget_bytes = 0
        self._verifier.pool.budget_bytes = None
        free_memory()


def free_memory() -> None:
    """Gives back what both libraries keep of freed tensors."""
    gc.collect()
    mx.clear_cache()


class TransformersSide:
    """transformers' `generate`, one token at a time, with the cache that `make_cache` makes.

    It is given the model and the most positions that the cache will hold.
    """

    def __init__(self, checkpoint: Checkpoint, dtype: str, make_cache: MakeCache) -> None:
        folder = checkpoint.folder
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPES[dtype])
        self._model = model.eval()
        self._make_cache = make_cache
        self._geometry = kv_geometry(folder, dtype)
        self._tile = _torch_tile(self._geometry, DTYPES[dtype])

    def notes(self) -> dict[str, object]:
        """See `Side`."""
        return {}

    def decode(self, context: int, timer: Ticking) -> None:
        """See `Side`."""
        cache = self._make_cache(self._model, context + 1 + timer.most_steps)
        pieces = [self._tile(count)[None] for count in _pieces(context)]
        for layer in range(self._geometry.layers):
            numbers = torch.cat(pieces, dim=2)
            cache.update(numbers, numbers.clone(), layer)
        ids = torch.full((1, context + 1), FIRST_TOKEN)

        def enough(_ids: torch.Tensor, _scores: object, **_: object) -> torch.Tensor:
            return torch.tensor([timer.tick()])

        with torch.inference_mode():
            self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                past_key_values=cache,
                max_new_tokens=timer.most_steps,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
                stopping_criteria=[enough],
            )


def dynamic_cache(model: PreTrainedModel, _positions: int) -> Cache:
    """The library's default: it grows by copying."""
    return DynamicCache(config=model.config)


def static_cache(model: PreTrainedModel, positions: int) -> Cache:
    """Allocated once for all positions, which every step attends to, masked."""
    return StaticCache(config=model.config, max_cache_len=positions)


class MlxLmSide:
    """mlx-lm's `generate_step` with its default cache."""

    def __init__(self, checkpoint: Checkpoint, dtype: str) -> None:
        folder = checkpoint.folder
        self._model, _ = load_model(folder)
        self._geometry = kv_geometry(folder, dtype)
        self._tile = _mlx_tile(self._geometry, MLX_DTYPES[dtype])

    def notes(self) -> dict[str, object]:
        """See `Side`."""
        return {}

    def decode(self, context: int, timer: Ticking) -> None:
        """See `Side`."""
        cache = make_prompt_cache(self._model)
        pieces = [self._tile(count)[None] for count in _pieces(context)]
        for layer in cache:
            numbers = mx.concatenate(pieces, axis=2)
            layer.update_and_fetch(numbers, numbers)
            mx.eval(layer.keys, layer.values)
        tokens = generate_step(
            mx.array([FIRST_TOKEN]),
            self._model,
            max_tokens=timer.most_steps,
            prompt_cache=cache,
        )
        for _token in tokens:
            if timer.tick():
                break
        tokens.close()
        del cache, pieces, numbers, tokens
        free_memory()


SIDES: dict[str, Callable[[Checkpoint, str], Side]] = {
    "torch": partial(EngineSide, backend="torch"),
    "mlx": partial(EngineSide, backend="mlx"),
    "transformers": partial(TransformersSide, make_cache=dynamic_cache),
    "transformers_static": partial(TransformersSide, make_cache=static_cache),
    "mlx_lm": MlxLmSide,
}
"""By the names of the report: this engine on its two back ends, and two libraries, one of them
with each of its caches."""


def step_seconds(
    side: Side, context: int, *, new_tokens: int, limit_seconds: float
) -> Sequence[float]:
    """Seconds of each single-token step behind `context`."""
    timer = StepTimer(new_tokens, limit_seconds, time.perf_counter)
    side.decode(context, timer)
    return timer.seconds


def _named(folder: Path) -> ModelFolder:
    return ModelFolder(folder, folder.name)


def _pieces(context: int) -> list[int]:
    full, rest = divmod(context, PIECE)
    return [PIECE] * full + [rest] * bool(rest)


def _torch_tile(geometry: KvGeometry, dtype: torch.dtype) -> Callable[[int], torch.Tensor]:
    """Random numbers [kv_heads, n, head_dim] for n up to `PIECE`."""
    generator = torch.Generator().manual_seed(0)
    tile = torch.randn(geometry.kv_heads, PIECE, geometry.head_dim, generator=generator).to(dtype)
    return lambda count: tile[:, :count]


def _mlx_tile(geometry: KvGeometry, dtype: mx.Dtype) -> Callable[[int], mx.array]:
    """Random numbers [kv_heads, n, head_dim] for n up to `PIECE`."""
    shape = (geometry.kv_heads, PIECE, geometry.head_dim)
    tile = mx.random.normal(shape, key=mx.random.key(0)).astype(dtype)
    mx.eval(tile)
    return lambda count: tile[:, :count]
