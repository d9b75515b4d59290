"""What a window forgets of real text, and what each restorer gives back: a published model.

    python -m scripts.eval.restored_text --restorers OUT/fitted-576 OUT/trained-576 \\
        --out benchmarks/restored_text.json

Through this engine's verifier in its own format and its caches: full attention, sink and window,
an archive in another process, and learned maps that deposit fewer numbers a position
(`scripts.train.fit_restorer` and `scripts.train.pair` write their folders). Each side reads the
same:

- texts, this repository's pages and its code, that no map was fitted on: perplexity by position,
  and how far the next tokens' distributions are from full attention's;
- texts with facts, asked for in several words behind them (`text_questions`);
- answers of hundreds of tokens, of which a part that has just left the window is begun again, and
  a part of the prompt: how much of what follows is said word for word (`text_quotes`);
- single tokens behind a text: how many a second in turns with the other sides, what they
  send and are answered, and what is kept where.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kakeya.text import TextCodec
from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.sessions.acceptance import accepted_prefix
from kakeya_fleet.engine.verifiers.exactness import settle
from scripts.bench.counted_store import CountedStore
from scripts.bench.intervals import summary
from scripts.bench.machine import ROOT, command, machine, write_report
from scripts.eval.recall_measure import wilson_interval
from scripts.eval.restorers import Restoring
from scripts.eval.teacher_forced import read
from scripts.eval.text_needles import ANSWER_TOKENS, is_hit
from scripts.eval.text_questions import AskedText, Question, asked_texts
from scripts.eval.text_quotes import WHOLE, QuotedText, quoted_texts
from scripts.eval.text_sides import Side, continued, perplexity_of, read_text, sides_of
from scripts.eval.weights_quality import compared

KINDS = {"pages": ("docs", "*.md"), "code": ("engine", "*.py")}
"""Folders of texts by kind, and which files of them."""
ENDS = (1024, 2048, 4096)
"""Positions at which a band ends and the next begins."""
EVERY = 16
"""Positions from one whose distribution is compared to the next."""
NOTES = {
    "perplexity": "of the tokens in a band of positions, of all texts of a kind",
    "divergence_nats": f"from full attention, the mean over every {EVERY}th position of a band",
    "same_choice": "share of those positions at which the likeliest token is full attention's",
    "facts": "of each number of facts in a text, questions whose answer is the code and no more",
    "quotes": f"tokens of {WHOLE} that follow a cue word for word, and quotes that are whole",
    "verifier_bytes": "bytes of the verifier's cache, asked of its tensors",
    "restorer_bytes": "bytes of the tensors that keep what was evicted, in the archive's process",
    "bytes_a_position": "of the tensors of deposits, as they are packed",
    "bytes_a_step": "of the tensors of queries and partial outputs of single tokens, without them",
    "tokens_per_second": "single tokens behind a text, sides in turns: medians by turn",
}


def texts_of(codec: TextCodec, kind: str) -> list[int]:
    """All files of a kind, one behind the other."""
    folder, pattern = KINDS[kind]
    files = sorted((ROOT / folder).rglob(pattern))
    return codec.encode("\n".join(file.read_text(encoding="utf-8") for file in files))


def bands(length: int) -> list[tuple[int, int]]:
    """Of `length` predicted tokens."""
    ends = [end for end in ENDS if end < length]
    return list(zip([0, *ends], [*ends, length], strict=True))


def language(
    verifier: Verifier, sides: Sequence[Side], texts: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """Each side's figures by band, of texts of one length; the first side is compared with."""
    spans = bands(len(texts[0]) - 1)
    parts = [slice(-(-first // EVERY), -(-end // EVERY)) for first, end in spans]
    nats: dict[str, list[np.ndarray]] = {side.name: [] for side in sides}
    apart: dict[str, list[list[dict[str, float]]]] = {side.name: [] for side in sides}
    speeds: dict[str, list[float]] = {side.name: [] for side in sides}
    for text in texts:
        own: np.ndarray | None = None
        for side in sides:
            with side.opened(len(text)) as cache:
                reading = read_text(verifier, cache, text, EVERY)
            own = reading.places if own is None else own
            apart[side.name].append(
                [compared([own[part]], [reading.places[part]]) for part in parts]
            )
            nats[side.name].append(reading.nats)
            speeds[side.name].append(len(text) / reading.seconds)
            print(f"{side.name}: {perplexity_of([reading.nats]):.2f}", file=sys.stderr)
    return {
        name: {
            "bands": [
                {
                    "from": first,
                    "to": end,
                    "perplexity": perplexity_of([costs[first:end] for costs in nats[name]]),
                    **_means([by_text[index] for by_text in apart[name]]),
                }
                for index, (first, end) in enumerate(spans)
            ],
            "read_tokens_per_second": statistics.median(speeds[name]),
        }
        for name in nats
    }


def _means(cells: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: statistics.fmean(cell[name] for cell in cells) for name in cells[0]}


def _cases(hits: int, count: int) -> dict[str, Any]:
    return {"hits": hits, "cases": count, "wilson_95": list(wilson_interval(hits, count))}


def facts(
    verifier: Verifier, side: Side, codec: TextCodec, texts: Sequence[AskedText]
) -> dict[str, Any]:
    """What a side recalls: of all, and by the number of facts, the depth and the words."""
    asked: list[tuple[int, Question, bool]] = []
    for text in texts:
        with side.opened(len(text.tokens) + 64) as cache:
            read(verifier, cache, text.tokens)
            for question in text.questions:
                fork = cache.fork(cache.length)
                said = continued(verifier, fork, question.prompt, ANSWER_TOKENS)
                fork.release()
                asked.append((text.facts, question, is_hit(codec, question.answer, said)))
    found = _cases(sum(hit for *_, hit in asked), len(asked))
    for name, keys in (
        ("by_facts", [count for count, *_ in asked]),
        ("by_depth", [question.depth for _, question, _ in asked]),
        ("by_phrasing", [question.phrasing for _, question, _ in asked]),
    ):
        hits = Counter(key for key, (*_, hit) in zip(keys, asked, strict=True) if hit)
        counts = Counter(keys)
        found[name] = {str(key): _cases(hits[key], counts[key]) for key in sorted(counts)}
    return found


def quotes(verifier: Verifier, side: Side, texts: Iterable[QuotedText]) -> dict[str, Any]:
    """By where a quote is from."""
    found: dict[str, list[int]] = {}
    for text in texts:
        with side.opened(len(text.tokens) + 64) as cache:
            read(verifier, cache, text.tokens)
            for quote in text.quotes:
                fork = cache.fork(cache.length)
                said = continued(verifier, fork, quote.cue, WHOLE)
                fork.release()
                found.setdefault(quote.where, []).append(accepted_prefix(quote.follows, said))
    return {
        where: {
            "tokens": statistics.fmean(counts),
            "whole": _cases(sum(count == WHOLE for count in counts), len(counts)),
        }
        for where, counts in found.items()
    }


def steps(
    verifier: Verifier, sides: Sequence[Side], text: Sequence[int], rounds: int, tokens: int
) -> dict[str, Any]:
    """Single tokens behind a text, the sides in shuffled turns."""
    rng = random.Random(0)
    with ExitStack() as stack:
        behind = {
            side.name: stack.enter_context(side.counted(len(text) + rounds * tokens + 1))
            for side in sides
        }
        for cache, _ in behind.values():
            read(verifier, cache, text)
        speeds: dict[str, list[float]] = {side.name: [] for side in sides}
        crossed: dict[str, int] = dict.fromkeys(speeds, 0)
        for _ in range(rounds):
            for side in rng.sample(list(sides), len(sides)):
                cache, store = behind[side.name]
                before = _asked_and_answered(store)
                began = time.perf_counter()
                continued(verifier, cache, [text[-1]], tokens)
                speeds[side.name].append(tokens / (time.perf_counter() - began))
                crossed[side.name] += _asked_and_answered(store) - before
        full = speeds[sides[0].name]
        return {
            name: {
                "tokens_per_second": summary(speeds[name]),
                "over_full": summary([a / b for a, b in zip(speeds[name], full, strict=True)]),
                "bytes_a_position": 0.0 if store is None else store.deposited_bytes_a_position,
                "bytes_a_step": crossed[name] / (rounds * tokens),
                "verifier_bytes": cache.memory_bytes,
                "restorer_bytes": 0 if store is None else store.stored_bytes,
            }
            for name, (cache, store) in behind.items()
        }


def _asked_and_answered(store: CountedStore | None) -> int:
    return 0 if store is None else store.bytes_crossed - store.bytes_deposited


def _without_folders(line: str, folders: Sequence[str]) -> str:
    """The line without where the maps lie on this machine."""
    for folder in folders:
        line = line.replace(folder, f"OUT/{Path(folder).name}" if "/" in folder else folder)
    return line


class Evaluation:
    """One verifier, its sides, and what they are asked."""

    def __init__(
        self, arguments: argparse.Namespace, verifier: Verifier, codec: TextCodec, sides: list[Side]
    ) -> None:
        self._asked = arguments
        self._verifier = verifier
        self._codec = codec
        self._sides = sides
        self._texts = {kind: texts_of(codec, kind) for kind in KINDS}

    def texts(self) -> dict[str, Any]:
        """`language` by kind."""
        rng, length = random.Random(self._asked.seed), self._asked.length
        found = {}
        for kind, ids in self._texts.items():
            starts = [rng.randrange(len(ids) - length) for _ in range(self._asked.texts)]
            texts = [ids[start : start + length] for start in starts]
            found[kind] = language(self._verifier, self._sides, texts)
            _tell(kind, found[kind])
        return found

    def facts(self) -> dict[str, Any]:
        """`facts` by context and side."""
        found: dict[str, dict[str, Any]] = {}
        for context in self._asked.contexts:
            seed, counts = self._asked.seed + context, self._asked.facts
            asked = list(asked_texts(self._codec, self._texts["pages"], context, counts, seed))
            by_side = found[str(context)] = {}
            for side in self._sides:
                by_side[side.name] = facts(self._verifier, side, self._codec, asked)
                _tell(f"{context} tokens, {side.name}", by_side[side.name])
        return found

    def quotes(self) -> dict[str, Any]:
        """`quotes` by side, of answers that full attention gave."""
        texts = quoted_texts(
            self._verifier,
            self._sides[0],
            self._texts["pages"],
            count=self._asked.quoted,
            prompt=self._asked.quoted_prompt,
            answer=self._asked.quoted_answer,
            window=self._asked.window,
            seed=self._asked.seed,
        )
        quoted = list(texts)
        found = {side.name: quotes(self._verifier, side, quoted) for side in self._sides}
        _tell("quotes", found)
        return found

    def steps(self) -> dict[str, Any]:
        """`steps` behind a page."""
        asked, text = self._asked, self._texts["pages"][: self._asked.behind]
        found = steps(self._verifier, self._sides, text, asked.rounds, asked.steps)
        return {"context_tokens": len(text), "sides": found}


def _tell(what: str, found: object) -> None:
    """A run takes most of an hour: what one has measured is said at once."""
    print(f"{what}: {json.dumps(found)}", file=sys.stderr)


def evaluate(arguments: argparse.Namespace) -> dict[str, Any]:
    """The report."""
    began = time.monotonic()
    folder = resolve_model(arguments.model)
    verifier = load_verifier(folder, backend="torch", dtype="auto")
    settle(verifier)
    # Verifier and archive compute in turns: each may have all of the cores.
    threads = torch.get_num_threads()
    with ExitStack() as stack:
        restorings = [
            stack.enter_context(
                closing(Restoring(verifier, learned, arguments.archive, threads=threads))
            )
            for learned in arguments.restorers
        ]
        sides = sides_of(verifier, arguments.sink, arguments.window, restorings)
        codec = TextCodec.from_folder(folder.path)
        evaluation = Evaluation(arguments, verifier, codec, sides)
        measured = {
            "texts": evaluation.texts(),
            "facts": evaluation.facts(),
            "quotes": evaluation.quotes(),
            "steps": evaluation.steps(),
        }
    return {
        "command": _without_folders(command(__file__), arguments.restorers),
        "machine": machine(),
        "threads": threads,
        "model": verifier.info.model_id,
        "weights_digest": verifier.info.weights_digest,
        "maps": [each.description for each in restorings],
        "sink_tokens": arguments.sink,
        "window_tokens": arguments.window,
        "texts_of_a_kind": arguments.texts,
        "tokens_of_a_text": arguments.length,
        "seed": arguments.seed,
        "notes": NOTES,
        "quoted_answer_tokens": arguments.quoted_answer,
        **measured,
        "wall_seconds": round(time.monotonic() - began),
    }


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--model", default="smollm2")
    add("--restorers", nargs="+", required=True, help="drafters with maps: folders, shipped ones")
    add("--texts", type=int, default=1, help="of each kind")
    add("--length", type=int, default=8000, help="tokens of a text")
    add("--contexts", type=int, nargs="+", default=[1000], help="of facts")
    add("--facts", type=int, nargs="+", default=[1, 2, 4], help="in a text")
    add("--quoted", type=int, default=6, help="answers of which is quoted")
    add("--quoted-prompt", type=int, default=300, help="tokens")
    add("--quoted-answer", type=int, default=700, help="tokens")
    add("--behind", type=int, default=4000, help="tokens before single ones")
    add("--rounds", type=int, default=5, help="turns of each side behind them")
    add("--steps", type=int, default=16, help="tokens of a turn")
    add("--sink", type=int, default=4)
    add("--window", type=int, default=256)
    add("--seed", type=int, default=2026)
    add("--archive", default="1GiB", help="bytes of each archive's process, or local")
    add("--out", type=Path, default=Path("benchmarks/restored_text.json"))
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    """Evaluates, and writes the report."""
    arguments = parse(words)
    write_report(arguments.out, evaluate(arguments))


if __name__ == "__main__":
    main()
