"""How far `--weights int8` and `int4`, and llama.cpp's types, are from the model's own numbers.

    python -m scripts.eval.weights_quality --out benchmarks/weights_quality.json
    python -m scripts.eval.weights_quality --llama-cpp VENV/bin/python

On text that nobody trained on: pages of this repository's docs, in windows. Behind every eighth
token: the Kullback-Leibler divergence of the next token's distribution from that of the
checkpoint's own numbers, whether both choose the same token, and the perplexity of each. And facts
in such text, one a prompt: in how many of the prompts is it recalled, word for word. llama.cpp is
asked where a Python that has xllamacpp is named: it reads the model in the types Q8_0 and Q4_0.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch
from gguf.constants import GGMLQuantizationType

from kakeya.text import TextCodec
from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.models.gguf.source import find_gguf
from scripts.bench.asked_process import llama_cpp
from scripts.bench.machine import ROOT, command, machine, write_report
from scripts.bench.published_gguf import write_as
from scripts.eval.quality_sides import LlamaSide, OwnSide, QualitySide
from scripts.eval.recall_measure import wilson_interval
from scripts.eval.text_needles import ANSWER_TOKENS, TextNeedle, is_hit, text_needles

MODEL = "smollm2"
PAGES = ("docs/members.md", "docs/long-sessions.md", "docs/service.md", "docs/under-attack.md")
EVERY = 8
SEED = 1
TYPES = (GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_0)


def sides(
    python: Path | None, folder: Path, vocabulary: int, stack: ExitStack
) -> Iterator[tuple[str, QualitySide]]:
    """Those that are compared, one after the other."""
    model = resolve_model(MODEL)
    for weights in ("int8", "int4"):
        verifier = load_verifier(model, backend="torch", dtype="auto", weights=weights)
        yield f"kakeya {weights}", OwnSide(verifier)
    if python is None:
        return
    for kind in TYPES:
        file = folder / f"{kind.name}.gguf"
        write_as(find_gguf(MODEL).path, file, kind)
        asked = llama_cpp(python, file, torch.get_num_threads(), stack)
        yield f"llama.cpp {kind.name}", LlamaSide(asked, vocabulary)


def texts(
    codec: TextCodec, tokens: int, needles: int, needle_tokens: int
) -> tuple[list[list[int]], list[TextNeedle]]:
    """A window of each page, and prompts with a fact."""
    pages = [(ROOT / page).read_text() for page in PAGES]
    windows = [codec.encode(page)[:tokens] for page in pages]
    return windows, list(text_needles(codec, "\n".join(pages), needles, needle_tokens, SEED))


def places_of(window: Sequence[int]) -> range:
    """Tokens of a window whose successors are looked at."""
    return range(EVERY - 1, len(window) - 1, EVERY)


def recalled(
    side: QualitySide, needles: Sequence[TextNeedle], codec: TextCodec
) -> dict[str, object]:
    """Facts that the side recalls, with Wilson's interval of 95 %."""
    hits = sum(
        is_hit(codec, needle.answer, side.continued(needle.prompt, ANSWER_TOKENS))
        for needle in needles
    )
    return {
        "hits": hits,
        "cases": len(needles),
        "wilson_95": list(wilson_interval(hits, len(needles))) if needles else None,
    }


def perplexity(found: Sequence[np.ndarray], windows: Sequence[Sequence[int]]) -> float:
    """Of the tokens behind the places of all windows."""
    losses = [
        -rows[index, window[place + 1]]
        for rows, window in zip(found, windows, strict=True)
        for index, place in enumerate(places_of(window))
    ]
    return float(np.exp(np.mean(losses)))


def compared(own: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> dict[str, float]:
    """Of the same places of all windows."""
    ours, theirs = np.concatenate(list(own)), np.concatenate(list(other))
    return {
        "divergence_nats": float((np.exp(ours) * (ours - theirs)).sum(axis=1).mean()),
        "same_choice": float((ours.argmax(axis=1) == theirs.argmax(axis=1)).mean()),
    }


def main(words: Sequence[str] | None = None) -> int:
    """Runs it all and writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=1024, help="of a window, one a page")
    parser.add_argument("--needles", type=int, default=60, help="prompts with a fact")
    parser.add_argument("--needle-tokens", type=int, default=1000, help="of each")
    parser.add_argument("--llama-cpp", type=Path, help="a Python that has xllamacpp")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/weights_quality.json"))
    arguments = parser.parse_args(words)
    model = resolve_model(MODEL)
    codec = TextCodec.from_folder(model.path)
    windows, needles = texts(codec, arguments.tokens, arguments.needles, arguments.needle_tokens)
    verifier = load_verifier(model, backend="torch", dtype="auto")
    auto = OwnSide(verifier)
    own = [auto.log_probabilities(window, places_of(window)) for window in windows]
    of_weights: dict[str, dict[str, object]] = {
        "kakeya auto": {
            "perplexity": perplexity(own, windows),
            "needles": recalled(auto, needles, codec),
        }
    }
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        vocabulary = verifier.info.vocabulary_size
        for name, side in sides(arguments.llama_cpp, Path(folder), vocabulary, stack):
            found = [side.log_probabilities(window, places_of(window)) for window in windows]
            of_weights[name] = {
                **compared(own, found),
                "perplexity": perplexity(found, windows),
                "needles": recalled(side, needles, codec),
            }
            print(name, of_weights[name], flush=True)
    report = {
        "command": command(__file__).replace(str(arguments.llama_cpp), "PYTHON"),
        "machine": machine(),
        "model": MODEL,
        "pages": PAGES,
        "tokens": sum(len(window) for window in windows),
        "places": sum(len(places_of(window)) for window in windows),
        "needle_tokens": arguments.needle_tokens,
        "of_weights": of_weights,
    }
    write_report(arguments.out, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
