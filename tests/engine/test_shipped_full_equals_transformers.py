"""The shipped model, all of its context kept, decodes as transformers decodes it."""

from __future__ import annotations

import inspect
import json
import statistics
import textwrap
from collections import defaultdict

import pytest
import torch
import transformers

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.models.model_folder import SHIPPED, resolve

PROMPTS = 20
TOKENS = 200
PROMPT_TOKENS = 40

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not (SHIPPED["tiny"] / "model.safetensors").is_file(), reason="no shipped model here"
    ),
]


def prompts() -> list[str]:
    """The beginnings of functions of the standard library, and some texts of our own."""
    functions = [
        function
        for module in (json.decoder, statistics, textwrap)
        for _, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__
    ]
    texts = [inspect.getsource(function)[:200] for function in functions]
    texts += ["def parse_header(line):", "class Node:\n    def __init__(self", "import os\n"]
    return texts[-PROMPTS:]


def test_full_equals_transformers_greedy_decoding() -> None:
    folder = resolve("tiny")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder.path)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder.path, dtype=torch.float32)
    model.generation_config = transformers.GenerationConfig(pad_token_id=0)  # no end of text
    verifier = load_verifier(folder)
    spec = CacheSpec(CacheKind.CONTIGUOUS, capacity=PROMPT_TOKENS + TOKENS + 1)
    texts = prompts()
    assert len(texts) == PROMPTS
    # Prompts of one length are decoded together, without padding.
    by_length: dict[int, list[list[int]]] = defaultdict(list)
    for text in texts:
        ids = tokenizer(text).input_ids[:PROMPT_TOKENS]
        by_length[len(ids)].append(ids)
    decoded = []
    for together in by_length.values():
        output = model.generate(
            torch.tensor(together),
            attention_mask=torch.ones_like(torch.tensor(together)),
            max_new_tokens=TOKENS,
            do_sample=False,
        )
        decoded += [
            (ids, row[len(ids) :].tolist()) for ids, row in zip(together, output, strict=True)
        ]
    assert len(decoded) == PROMPTS
    for ids, expected in decoded:
        # The choice behind every prefix of the expected stream is its next token: by
        # induction that is the greedy stream, for a sixteenth of the forwards.
        cache = verifier.allocate(spec)
        history = [*ids, *expected[:-1]]
        chosen: list[int] = []
        for start in range(0, len(history), 16):
            logits = verifier.forward(cache, history[start : start + 16], want_logits=True)
            assert logits is not None
            chosen += logits.argmax(axis=1).tolist()
        assert chosen[len(ids) - 1 :] == expected, tokenizer.decode(ids)
