"""A verifier on torch: fixed-width forwards over this engine's own caches."""

from __future__ import annotations

from collections.abc import Sequence

import psutil
import torch
from transformers import PreTrainedModel

from engine.backends.torch_backend.architectures import read_architecture
from engine.backends.torch_backend.checkpoint import load_model
from engine.backends.torch_backend.kv_cache import TorchKvCache, slot_map
from engine.backends.torch_backend.kv_shape import KvShape
from engine.cache import CacheSpec, KvCache
from engine.digests import tokenizer_digest, weights_digest
from engine.errors import BadParameters, TokenOutOfVocabulary
from engine.model_folder import ModelFolder
from engine.verifier import Logits, VerifierInfo

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
WIDTHS = (16, 32, 48, 64)
"""Multiples of 16, so that a row of any forward fills whole vectors."""
PADDING_TOKEN = 0
"""Any id serves: a padding row's keys are not written and its output is dropped."""


class TorchVerifier:
    """A loaded model. Holds no session's state: that is all in the caches."""

    def __init__(self, model: PreTrainedModel, info: VerifierInfo, shape: KvShape) -> None:
        self._body = model.model
        self._head = model.lm_head
        self._info = info
        self._shape = shape

    @property
    def info(self) -> VerifierInfo:
        """What it is."""
        return self._info

    def allocate(self, spec: CacheSpec) -> TorchKvCache:
        """A new, empty cache. Raises `KvStrategyUnsupported` or `BadParameters`."""
        return TorchKvCache(self._shape, spec, slot_map(self._shape, spec))

    def clone(self, cache: KvCache) -> TorchKvCache:
        """An independent copy with the same contents."""
        return _own(cache).clone()

    def bytes_needed(self, spec: CacheSpec) -> int:
        """`memory_bytes` that `allocate(spec)` would have, without allocating."""
        return slot_map(self._shape, spec).slots * self._shape.bytes_per_slot

    @torch.inference_mode()
    def forward(
        self, cache: KvCache, token_ids: Sequence[int], *, want_logits: bool
    ) -> Logits | None:
        """Runs 1 to `width` tokens at positions `cache.length` onwards.

        Float32 logits [len(token_ids), vocabulary_size] if wanted. Raises, with
        nothing written, `BadParameters`, `TokenOutOfVocabulary` or
        `ContextExceeded`.
        """
        own = _own(cache)
        count = len(token_ids)
        self._check(token_ids)
        own.check_room(count)
        width = self._shape.width
        ids = torch.tensor([[*token_ids, *[PADDING_TOKEN] * (width - count)]])
        # Padding rows repeat the last position: it attends at least to itself, so that
        # no row is masked altogether and no softmax divides by zero.
        start = own.length
        last = start + count - 1
        positions = torch.tensor([min(start + row, last) for row in range(width)])
        hidden = self._body(
            input_ids=ids,
            position_ids=positions[None],
            past_key_values=own.step(positions, count),
            use_cache=False,
        ).last_hidden_state
        own.commit(count)
        if not want_logits:
            return None
        logits: Logits = self._head(hidden)[0, :count].to(torch.float32).numpy()
        return logits

    def _check(self, token_ids: Sequence[int]) -> None:
        if not 1 <= len(token_ids) <= self._shape.width:
            raise BadParameters(
                f"a forward takes 1 to {self._shape.width} tokens, not {len(token_ids)}"
            )
        size = self._info.vocabulary_size
        for token_id in token_ids:
            if not 0 <= token_id < size:
                raise TokenOutOfVocabulary(
                    f"token id {token_id} is outside 0..{size - 1}", token_id=str(token_id)
                )


def load_verifier(
    folder: ModelFolder,
    *,
    dtype: str = "float32",
    width: int = 16,
    available_bytes: int | None = None,
) -> TorchVerifier:
    """The model in `folder` on the CPU; see `engine.backends.load_verifier`."""
    if dtype not in DTYPES:
        raise BadParameters(f"no dtype {dtype!r}; there are: {', '.join(DTYPES)}")
    if width not in WIDTHS:
        raise BadParameters(f"no width {width}; there are: {', '.join(map(str, WIDTHS))}")
    architecture = read_architecture(folder.path)
    if available_bytes is None:
        available_bytes = psutil.virtual_memory().available
    model = load_model(
        folder.path,
        architecture,
        dtype=DTYPES[dtype],
        rows=width,
        available_bytes=available_bytes,
    )
    config = architecture.config
    heads = config.num_attention_heads
    shape = KvShape(
        layers=config.num_hidden_layers,
        kv_heads=config.num_key_value_heads,
        groups=heads // config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        width=width,
        context_length=config.max_position_embeddings,
        dtype=DTYPES[dtype],
    )
    info = VerifierInfo(
        model_id=folder.model_id,
        architecture=architecture.name,
        weights_digest=weights_digest(folder.path),
        tokenizer_digest=tokenizer_digest(folder.path),
        quantization="",
        dtype=dtype,
        vocabulary_size=config.vocab_size,
        context_length=config.max_position_embeddings,
        kv_bytes_per_token=shape.bytes_per_slot,
        width=width,
    )
    return TorchVerifier(model, info, shape)


def _own(cache: KvCache) -> TorchKvCache:
    """`cache` as one of this back end's."""
    if not isinstance(cache, TorchKvCache):
        raise TypeError(f"{type(cache).__name__} is a cache of another back end")
    return cache
