"""The shipped model, all of its context kept, decodes as transformers decodes it."""

from __future__ import annotations

import inspect
import json
import statistics
import textwrap

import pytest
import torch
import transformers

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.models.model_folder import SHIPPED, resolve
from tests.support.breadth import wide
from tests.support.forwards import logits_of

PROMPT_TOKENS = 40

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not (SHIPPED["tiny"] / "model.safetensors").is_file(), reason="no shipped model here"
    ),
]


def prompts(tokenizer: transformers.PreTrainedTokenizerBase, most: int) -> list[list[int]]:
    """The beginnings of functions of the standard library, of one length: no padding is needed."""
    functions = [
        function
        for module in (json.decoder, statistics, textwrap)
        for _, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__
    ]
    texts = [tokenizer(inspect.getsource(function)).input_ids for function in functions]
    return [ids[:PROMPT_TOKENS] for ids in texts if len(ids) >= PROMPT_TOKENS][-most:]


@pytest.mark.parametrize(("prompt_count", "token_count"), [(5, 60), wide(20, 200)])
def test_full_equals_transformers_greedy_decoding(prompt_count: int, token_count: int) -> None:
    folder = resolve("tiny")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder.path)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder.path, dtype=torch.float32)
    model.generation_config = transformers.GenerationConfig(pad_token_id=0)  # no end of text
    verifier = load_verifier(folder)
    spec = CacheSpec(CacheKind.CONTIGUOUS, capacity=PROMPT_TOKENS + token_count + 1)
    together = prompts(tokenizer, prompt_count)
    assert len(together) == prompt_count
    output = model.generate(
        torch.tensor(together),
        attention_mask=torch.ones_like(torch.tensor(together)),
        max_new_tokens=token_count,
        do_sample=False,
    )
    for ids, row in zip(together, output.tolist(), strict=True):
        expected = row[len(ids) :]
        # The choice behind every prefix of the expected stream is its next token: by
        # induction that is the greedy stream, for far fewer forwards.
        cache = verifier.allocate(spec)
        history = [*ids, *expected[:-1]]
        chosen: list[int] = []
        widest = min(cache.widest, verifier.row_counts[-1])
        for start in range(0, len(history), widest):
            logits = logits_of(verifier, cache, history[start : start + widest])
            chosen += logits.argmax(axis=1).tolist()
        assert chosen[len(ids) - 1 :] == expected, tokenizer.decode(ids)
