"""What a plain drafter wins by forwards that are made for drafts, and by what it need not read.

    python -m scripts.bench.draft_forwards

The published model in four bits drafts for itself in bfloat16, in this process: blocks behind
prompts by kind of text, greedily and at temperature 0.7, by the forwards of a verifier of such
weights and by a drafter's, which take turns. The latter's inputs have fifteen bits, and its head
is looked at in two bits first. A third side has these forwards and is given the verifier's keys and
values of the prompt, which the others read. What is accepted is what the verifier's answer has
there; behind each block stands the answer itself. Of each side the median milliseconds a drafted
token and before the first one, and the share of drafted tokens that was accepted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kakeya.text import TextCodec
from kakeya_fleet.engine.backends import for_drafts, load_verifier
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.proposers.autoregressive import AutoregressiveProposer
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters, choose_token
from scripts.bench.machine import command, machine, write_report
from scripts.bench.plain_drafts import MODEL
from scripts.bench.trained_drafter import KINDS

DTYPE, WEIGHTS = "bfloat16", "int4"
HEATS = {"greedy": GREEDY, "at 0.7": SamplingParameters(temperature=0.7, seed=11)}
BLOCK = 8


@dataclass(slots=True)
class Side:
    """A proposer, and what was seen of it."""

    proposer: AutoregressiveProposer
    is_given: bool = False
    begun: list[float] = field(default_factory=list)
    """Milliseconds from a prompt to a drafted token, by prompt."""
    milliseconds: list[float] = field(default_factory=list)
    """A drafted token, by block."""
    drafted: int = 0
    accepted: int = 0

    def told(self) -> dict[str, float]:
        """For the report."""
        return {
            "milliseconds_before": statistics.median(self.begun),
            "milliseconds_a_token": statistics.median(self.milliseconds),
            "accepted_share": self.accepted / self.drafted,
        }


def answer(
    verifier: Verifier,
    prompt: Sequence[int],
    parameters: SamplingParameters,
    stops: set[int],
    count: int,
) -> tuple[list[int], KvCache]:
    """What the verifier says by itself, up to one of `stops`, and the cache that has it."""
    cache = verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=len(prompt) + count))
    said: list[int] = []
    widest = verifier.row_counts[-1]
    pieces = [list(prompt[at : at + widest]) for at in range(0, len(prompt), widest)]
    for piece in pieces[:-1]:
        verifier.forward(cache, piece, want_logits=False)
    coming = pieces[-1]
    while len(said) < count and not stops & set(said[-1:]):
        logits = verifier.forward(cache, coming, want_logits=True)
        if logits is None:
            raise AssertionError("a forward gave no logits, which were asked for")
        coming = [choose_token(logits[-1], parameters, len(prompt) + len(said))]
        said += coming
    return said, cache


def draft_along(
    side: Side,
    prompt: Sequence[int],
    said: Sequence[int],
    parameters: SamplingParameters,
    cache: KvCache,
) -> None:
    """Blocks behind the prompt and what of the answer was committed; all of it is."""
    state, began = side.proposer.open_whole(prompt), time.perf_counter()
    count = len(prompt) - 1
    numbers = cache.keys_values(0, count) if side.is_given else None
    if numbers is not None:
        state.take_keys_values(0, count, numbers)
    while state.is_behind:
        state.read()
    # The first block reads the end of the prompt too.
    state.propose((), 1, 1)
    side.begun.append(1e3 * (time.perf_counter() - began))
    done = 0
    while done < len(said):
        draft = state.propose((), BLOCK, 1, parameters.drawing)
        coming = said[done : done + len(draft.token_ids)]
        equal = (own == drafted for own, drafted in zip(coming, draft.token_ids, strict=False))
        right = next((at for at, same in enumerate(equal) if not same), len(coming))
        if len(coming) == len(draft.token_ids):
            side.milliseconds.append(1e3 * draft.compute_seconds / len(draft.token_ids))
            side.drafted += len(draft.token_ids)
            side.accepted += right
        state.commit(said[done : done + right + 1])
        done += right + 1
    state.close()


def measured(count: int, most: int) -> dict[str, object]:
    """Of both sides, by how the verifier draws; of each kind's first `most` prompts."""
    folder = resolve_model(MODEL, dtype=DTYPE)
    codec = TextCodec.from_folder(folder.path)
    verifier = load_verifier(folder, backend="torch", dtype=DTYPE)
    drafter = load_verifier(folder, backend="torch", dtype=DTYPE, weights=WEIGHTS)
    verifying = AutoregressiveProposer(drafter)
    drafting = AutoregressiveProposer(for_drafts(drafter, folder))
    prompts = [
        codec.tokens_for_chat([{"role": "user", "content": question}])
        for questions in KINDS.values()
        for question in questions[:most]
    ]
    lengths = [len(prompt) for prompt in prompts]
    found: dict[str, object] = {"prompt_tokens": [min(lengths), max(lengths)]}
    for heat, parameters in HEATS.items():
        sides = {
            "as it verifies": Side(verifying),
            "as it drafts": Side(drafting),
            "given": Side(drafting, is_given=True),
        }
        for prompt in prompts:
            said, cache = answer(verifier, prompt, parameters, set(codec.stop_token_ids), count)
            for side in sides.values():
                draft_along(side, prompt, said, parameters, cache)
            cache.release()
        found[heat] = {name: side.told() for name, side in sides.items()}
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Runs it all and writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompts", type=int, default=2, help="of each kind")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/draft_forwards.json"))
    asked = parser.parse_args(words)
    found = measured(asked.tokens, asked.prompts)
    report = {
        "command": command(__file__),
        "machine": machine(),
        "model": MODEL,
        "block": BLOCK,
        **found,
    }
    write_report(asked.out, report)
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
