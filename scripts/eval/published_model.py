"""The published model, all of its context kept, against transformers on the same GGUF, in float32.

    python -m scripts.eval.published_model --out benchmarks/published_model.json

transformers reads the file with its own reader (`gguf_file=`) and decodes the chat prompts
greedily, in one batch, padded on the left, end of turn or not. The engine's choice behind
every prefix of that stream must be its next token: by induction that is its own greedy
stream. Told are the weights that differ in a bit (none may), the choices that differ (none
may), how far the logits are apart, and the smallest lead of a chosen token, which such a
distance must not reach.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from kakeya.text import TextCodec
from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.models.gguf.source import find_gguf
from scripts.bench.machine import command, machine, write_report

QUESTIONS = (
    "What is the capital of France?",
    "Explain to a child why the sky is blue.",
    "Write a short poem about a lighthouse.",
    "How do I boil an egg so that the yolk stays soft?",
    "Name three differences between a frog and a toad.",
    "What does a compiler do?",
    "Write a Python function that reverses a string.",
    "Give me a recipe for bread with four ingredients.",
    "Why do leaves change their colour in autumn?",
    "Tell me a joke about a cat.",
    "Translate 'good morning' into French, Spanish and German.",
    "What is the difference between weather and climate?",
    "Summarise the story of Robinson Crusoe in three sentences.",
    "How can I remember names better?",
    "What is a prime number? Give five of them.",
    "Write a polite letter that declines an invitation.",
    "Who was Ada Lovelace?",
    "List five things to take on a walk in the mountains.",
    "How does a bicycle stay upright?",
    "Describe a market on a Saturday morning.",
)


@dataclass(frozen=True)
class Compared:
    """One prompt: what was generated, and how far both sides are apart."""

    question: str
    prompt_tokens: int
    tokens: int
    choices_that_differ: int
    largest_logit_distance: float
    smallest_lead: float
    """Of a chosen token's logit over the next, by transformers."""
    answer: str


def main() -> None:
    """Compares, writes the report, ends with 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--prompts", type=int, default=len(QUESTIONS))
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    file = find_gguf(arguments.model)
    library = transformers.AutoModelForCausalLM.from_pretrained(
        file.path.parent, gguf_file=file.path.name, dtype=torch.float32
    ).eval()
    # Without an end: its own would be taken where none is given.
    library.generation_config = transformers.GenerationConfig(pad_token_id=0)
    folder = resolve_model(arguments.model, dtype="float32")
    weights = _weights_that_differ(library, folder.path)
    verifier = load_verifier(folder, dtype="float32")
    codec = TextCodec.from_folder(folder.path)
    questions = QUESTIONS[: arguments.prompts]
    prompts = [codec.tokens_for_chat([{"role": "user", "content": each}]) for each in questions]
    began = time.monotonic()
    expected, theirs = _decoded(library, prompts, arguments.tokens)
    print(f"{time.monotonic() - began:.0f} s for transformers", flush=True)
    compared = [
        _compare(question, prompt, expected[row], theirs[row], verifier, codec)
        for row, (question, prompt) in enumerate(zip(questions, prompts, strict=True))
    ]
    print(f"{time.monotonic() - began:.0f} s with the engine's", flush=True)
    different = sum(each.choices_that_differ for each in compared)
    report: dict[str, Any] = {
        "command": command(__file__),
        "machine": machine(),
        "model": arguments.model,
        "file": file.path.name,
        "weights_digest": verifier.info.weights_digest,
        "weights_that_differ": weights,
        "prompts": len(compared),
        "tokens": sum(each.tokens for each in compared),
        "choices_that_differ": different,
        "largest_logit_distance": max(each.largest_logit_distance for each in compared),
        "smallest_lead": min(each.smallest_lead for each in compared),
        "compared": [asdict(each) for each in compared],
    }
    write_report(arguments.out, report)
    if different or weights:
        raise SystemExit(1)


def _weights_that_differ(library: transformers.PreTrainedModel, folder: Path) -> list[str]:
    """Names of tensors that the library's reader and the engine's make otherwise in any bit."""
    ours = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    theirs, found = library.state_dict(), ours.state_dict()
    shared = theirs.keys() & found.keys()
    different = [name for name in shared if not torch.equal(theirs[name], found[name])]
    return sorted({*different, *(theirs.keys() ^ found.keys())})


@torch.inference_mode()
def _decoded(
    library: transformers.PreTrainedModel, prompts: list[list[int]], count: int
) -> tuple[list[list[int]], np.ndarray]:
    """Of each prompt the greedy stream, and the logits [count, vocabulary] that it was of."""
    longest = max(map(len, prompts))
    padded = torch.tensor([[0] * (longest - len(ids)) + ids for ids in prompts])
    mask = torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts])
    output = library.generate(
        padded,
        attention_mask=mask,
        max_new_tokens=count,
        do_sample=False,
        return_dict_in_generate=True,
        output_logits=True,
    )
    return output.sequences[:, longest:].tolist(), torch.stack(output.logits, dim=1).numpy()


def _compare(
    question: str,
    prompt: list[int],
    expected: list[int],
    theirs: np.ndarray,
    verifier: Verifier,
    codec: TextCodec,
) -> Compared:
    ours = _logits(verifier, [*prompt, *expected[:-1]])[len(prompt) - 1 :]
    top = np.sort(theirs, axis=1)[:, -2:]
    return Compared(
        question=question,
        prompt_tokens=len(prompt),
        tokens=len(expected),
        choices_that_differ=int((ours.argmax(axis=1) != np.array(expected)).sum()),
        largest_logit_distance=float(np.abs(ours - theirs).max()),
        smallest_lead=float((top[:, 1] - top[:, 0]).min()),
        answer=codec.decode(expected, skip_special_tokens=True)[:300],
    )


def _logits(verifier: Verifier, history: list[int]) -> np.ndarray:
    """Logits [n, vocabulary] behind every prefix of `history`."""
    cache = verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=len(history)))
    widest = min(cache.widest, verifier.row_counts[-1])
    parts = []
    for start in range(0, len(history), widest):
        logits = verifier.forward(cache, history[start : start + widest], want_logits=True)
        assert logits is not None
        parts.append(logits)
    cache.release()
    return np.concatenate(parts)


if __name__ == "__main__":
    main()
