"""Bits per byte of a model on held-out files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from scripts.eval.recall_measure import Budget, attention_mask
from scripts.train.python_corpus import SourceFile


@dataclass(frozen=True)
class BitsPerByte:
    """What the measurement found, and over how much text."""

    bits_per_byte: float
    bytes: int
    tokens: int


@torch.no_grad()
def bits_per_byte(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    files: Sequence[SourceFile],
    budget: Budget | None = None,
    window: int = 1024,
) -> BitsPerByte:
    """The cost of `files` in bits per UTF-8 byte, each file from an end-of-text token on.

    Windows of `window` tokens overlap by half and each token counts once, so that but for the
    first half window of a file each has at least window / 2 tokens before it.
    """
    nats = 0.0
    tokens = 0
    for file in files:
        encoded = tokenizer.encode(file.text, add_special_tokens=False, verbose=False)
        ids = [tokenizer.eos_token_id, *encoded]
        counted = 1
        while counted < len(ids):
            start = max(0, counted - window // 2)
            part = torch.tensor([ids[start : start + window]], device=model.device)
            mask = None
            if budget is not None:
                mask = attention_mask(part.shape[1] - 1, budget, model.device)
            logits = model(input_ids=part[:, :-1], attention_mask=mask, use_cache=False).logits[0]
            skipped = counted - start - 1
            nats += cross_entropy(
                logits[skipped:].float(), part[0, 1 + skipped :], reduction="sum"
            ).item()
            counted = start + part.shape[1]
        tokens += len(ids) - 1
    size = sum(len(file.text.encode()) for file in files)
    return BitsPerByte(nats / math.log(2) / size, size, tokens)
