"""How far `--weights int8` and `int4` are from the published model's own numbers.

    python -m scripts.eval.weights_quality --out benchmarks/weights_quality.json

On text that nobody trained on: pages of this repository's docs, in windows. Behind every token of
it: the Kullback-Leibler divergence of the next token's distribution from that of the checkpoint's
own numbers, whether both choose the same token, and the perplexity of each.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from kakeya.text import TextCodec
from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from scripts.bench.machine import ROOT, command, machine, write_report

MODEL = "smollm2"
PAGES = ("docs/members.md", "docs/long-sessions.md", "docs/service.md", "docs/under-attack.md")
CHUNK = 64


def log_probabilities(verifier: Verifier, tokens: Sequence[int]) -> Iterator[np.ndarray]:
    """Those behind each token, [rows, vocabulary] at a time, float64."""
    cache = verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=len(tokens)))
    for first in range(0, len(tokens), CHUNK):
        logits = verifier.forward(cache, tokens[first : first + CHUNK], want_logits=True)
        assert logits is not None
        wide = logits.astype(np.float64)
        wide -= wide.max(axis=1, keepdims=True)
        yield wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
    cache.release()


def compared(own: Verifier, other: Verifier, tokens: Sequence[int]) -> dict[str, float]:
    """Sums over the tokens of one window."""
    found = dict.fromkeys(("divergence", "same", "own_loss", "other_loss", "count"), 0.0)
    pieces = zip(log_probabilities(own, tokens), log_probabilities(other, tokens), strict=True)
    for number, (ours, theirs) in enumerate(pieces):
        found["divergence"] += float((np.exp(ours) * (ours - theirs)).sum())
        found["same"] += float((ours.argmax(axis=1) == theirs.argmax(axis=1)).sum())
        found["count"] += len(ours)
        following = list(tokens[number * CHUNK + 1 : number * CHUNK + 1 + len(ours)])
        rows = np.arange(len(following))
        found["own_loss"] -= float(ours[rows, following].sum())
        found["other_loss"] -= float(theirs[rows, following].sum())
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Runs it all and writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=1024, help="of a window, one a page")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/weights_quality.json"))
    arguments = parser.parse_args(words)
    model = resolve_model(MODEL)
    codec = TextCodec.from_folder(model.path)
    windows = [codec.encode((ROOT / page).read_text())[: arguments.tokens] for page in PAGES]
    own = load_verifier(model, backend="torch", dtype="auto")
    found = {}
    for weights in ("int8", "int4"):
        other = load_verifier(model, backend="torch", dtype="auto", weights=weights)
        sums = [compared(own, other, window) for window in windows]
        total = {name: sum(each[name] for each in sums) for name in sums[0]}
        count = total["count"]
        found[weights] = {
            "divergence_nats": total["divergence"] / count,
            "same_choice": total["same"] / count,
            "perplexity": float(np.exp(total["other_loss"] / (count - len(windows)))),
        }
    report = {
        "command": command(__file__),
        "machine": machine(),
        "model": MODEL,
        "pages": PAGES,
        "tokens": int(count),
        "perplexity": float(np.exp(total["own_loss"] / (count - len(windows)))),
        "of_weights": found,
    }
    write_report(arguments.out, report)
    print(report["perplexity"], found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
