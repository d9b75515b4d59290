"""Needle recall by context, for every way of keeping K/V, and what lies behind it.

    python -m scripts.eval.needle --out benchmarks/needle.json

A fact lies somewhere in held-out Python code and is asked for at the end; only the
greedy choice counts. Prompts are read through this engine's verifier and caches,
in the widest forwards that a cache takes, and every strategy gets the same ones.
The archive is another process, an agent that this script starts. Then, on some of
the cases, with nothing else running: errors of restored keys and values, effective
attention, speed, bytes and peaks. The part `controls` asks what recall of one fact
does not show (`scripts/eval/needle_controls.py`); a part that is left out stays in the
report as it was. Writes JSON, and the tables in Markdown beside it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

import scripts.train.python_corpus as python_corpus
from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.models.model_folder import resolve
from kakeya_fleet.engine.verifiers.exactness import settle
from scripts.bench.kv_strategies import EXACT, FULL, STRATEGIES, Caches, Strategy
from scripts.bench.machine import command, machine, write_report
from scripts.bench.process_memory import PEAK_IS
from scripts.eval.needle_anatomy import EFFECTIVE_ATTENTION_IS, ERROR_IS, Dissection
from scripts.eval.needle_cases import LAST_POSITIONS, Score, Tally, score_case
from scripts.eval.needle_controls import NOTES as CONTROL_NOTES
from scripts.eval.needle_controls import control_figures, controls
from scripts.eval.needle_table import needle_markdown
from scripts.eval.recall import CONTEXTS, Rung
from scripts.eval.recall_task import RecallCase, RecallFormat, recall_format
from scripts.eval.restorers import Restoring

RECALL, CONTROLS = "recall", "controls"
BATCH = 10
"""Cases of one task of a worker."""
NOTES = {
    "recall": "share of cases whose first greedy token is the answer",
    "kl_nats_mean": f"KL(full || strategy) of the logits behind the last {LAST_POSITIONS} tokens",
    "argmax_agreement": "share of those positions with full attention's first choice",
    "effective_attention": EFFECTIVE_ATTENTION_IS,
    "key_error_by_layer": ERROR_IS,
    "value_error_by_layer": ERROR_IS,
    "decode_tokens_per_second": "of single-token greedy steps behind the prompt; a case's median",
    "sustained_kv_bytes": "bytes of the verifier's cache, asked of its tensors",
    "restorer_bytes": "bytes of the tensors that keep what was evicted, wherever they are",
    "peak_step_bytes": "of one verify step of as many tokens as a block has: "
    + PEAK_IS["peak_allocated_bytes"]
    + "; the verifier's process only",
    "same_tokens_as_full": "share of cases whose decoded tokens are all those of full attention",
    "restored identity": "a check of the plumbing, on fewer cases: exact K/V in the same process",
    **CONTROL_NOTES,
}


class Evaluation:
    """What every process of the evaluation needs, made from the command line alone."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        torch.set_num_threads(1)
        folder = resolve(arguments.verifier)
        self.arguments = arguments
        self.verifier: Verifier = load_verifier(folder, backend="torch")
        settle(self.verifier)
        tokenizer = AutoTokenizer.from_pretrained(folder.path)
        self._form: RecallFormat = recall_format(tokenizer)
        _, held_out = python_corpus.split(python_corpus.read_corpus(arguments.corpus))
        self._code = python_corpus.encode(tokenizer, held_out)
        self.restoring = Restoring(self.verifier, arguments.restorer, arguments.archive)
        self.caches = Caches(
            self.verifier, arguments.sink, arguments.window, self.restoring.restorers
        )

    @property
    def line_tokens(self) -> int:
        """Tokens of a fact."""
        return self._form.line_tokens

    def cases(self, context: int) -> list[RecallCase]:
        """The cases of a context, the same in every process."""
        rung = Rung(context, self.arguments.facts)
        return rung.cases(self._form, self._code, self.arguments.seed, self.arguments.cases)

    def strategies(self, index: int) -> list[Strategy]:
        """Those of a case, full attention first; the plumbing's check has fewer cases."""
        named = [STRATEGIES[name] for name in self.arguments.strategies]
        if index >= self.arguments.plumbing_cases:
            named = [strategy for strategy in named if strategy != EXACT]
        return [FULL, *(strategy for strategy in named if strategy != FULL)]

    def scores(self, context: int, first: int) -> list[Mapping[str, Score]]:
        """One task: `BATCH` cases from the one numbered `first`."""
        cases = self.cases(context)[first : first + BATCH]
        return [
            score_case(self.verifier, self.caches, self.strategies(index), case, self.line_tokens)
            for index, case in enumerate(cases, first)
        ]

    def controls(self) -> list[dict[str, Any]]:
        """The figures of every control."""
        arguments = self.arguments
        found = []
        for control in controls(arguments.control_contexts):
            figures = control_figures(
                control,
                control.cases(self._form, self._code, arguments.seed, arguments.control_cases),
                verifier=self.verifier,
                caches=self.caches,
                strategies=self.strategies(arguments.plumbing_cases),
                line_tokens=self.line_tokens,
            )
            found.append(figures)
            hits = {name: cell["hits"] for name, cell in figures["strategies"].items()}
            print(f"{control.name}, {control.context_tokens} tokens: {hits}", file=sys.stderr)
        return found


_evaluation: Evaluation | None = None


def begin_worker(arguments: argparse.Namespace) -> None:
    """Loads a worker's own model."""
    global _evaluation  # noqa: PLW0603 - a pool hands its workers nothing else
    _evaluation = Evaluation(arguments)


def run_task(context: int, first: int) -> list[Mapping[str, Score]]:
    """One task, in a worker."""
    if _evaluation is None:
        raise RuntimeError("a worker was not begun")
    return _evaluation.scores(context, first)


def all_scores(
    evaluation: Evaluation, tasks: Sequence[tuple[int, int]]
) -> Iterator[list[Mapping[str, Score]]]:
    """The tasks' results in order, here or in workers."""
    arguments = argparse.Namespace(**vars(evaluation.arguments))
    # Workers use the archive that this process has started.
    arguments.archive = evaluation.restoring.address
    if arguments.workers <= 1:
        for context, first in tasks:
            yield evaluation.scores(context, first)
        return
    with ProcessPoolExecutor(
        arguments.workers, get_context("spawn"), begin_worker, (arguments,)
    ) as pool:
        yield from pool.map(run_task, *zip(*tasks, strict=True))


def recall(evaluation: Evaluation) -> dict[int, dict[str, Tally]]:
    """Every case of every context."""
    arguments = evaluation.arguments
    tallies: dict[int, dict[str, Tally]] = {context: {} for context in arguments.contexts}
    tasks = [
        (context, first)
        for context in arguments.contexts
        for first in range(0, arguments.cases, BATCH)
    ]
    for (context, first), scores in zip(tasks, all_scores(evaluation, tasks), strict=True):
        for case in scores:
            for name, score in case.items():
                tallies[context].setdefault(name, Tally()).scores.append(score)
        done = {name: sum(s.hit for s in tally.scores) for name, tally in tallies[context].items()}
        print(f"{context} tokens, {first + len(scores)} cases: {done}", file=sys.stderr)
    return tallies


def anatomy(evaluation: Evaluation, context: int) -> dict[str, dict[str, Any]]:
    """What lies behind the recall at one context, on its first cases."""
    arguments = evaluation.arguments
    dissection = Dissection(
        evaluation.verifier,
        evaluation.caches,
        decoded=arguments.decode_tokens,
        seed=arguments.seed,
    )
    cases = evaluation.cases(context)[: arguments.anatomy_cases]
    return dissection.rung(evaluation.strategies(0), cases)


def recall_rungs(evaluation: Evaluation) -> list[dict[str, Any]]:
    """The report's part of one fact by context."""
    rungs = []
    for context, found in recall(evaluation).items():
        behind = anatomy(evaluation, context)
        rungs.append(
            {
                "context_tokens": context,
                "strategies": {
                    name: {**tally.summary(), "anatomy": behind[name]}
                    for name, tally in found.items()
                },
            }
        )
        print(f"{context} tokens: looked into", file=sys.stderr)
    return rungs


def evaluate(arguments: argparse.Namespace) -> dict[str, Any]:
    """The report; parts that are not measured are those of the report before."""
    begun = time.monotonic()
    before: dict[str, Any] = {"parts": {}}
    if set(arguments.parts) != {RECALL, CONTROLS}:
        before = json.loads(arguments.out.read_bytes())
    evaluation = Evaluation(arguments)
    measured: dict[str, Any] = {}
    if RECALL in arguments.parts:
        measured["rungs"] = recall_rungs(evaluation)
    if CONTROLS in arguments.parts:
        measured["controls"] = evaluation.controls()
    evaluation.restoring.close()
    info = evaluation.verifier.info
    own = {
        "command": command(__file__),
        "machine": machine(),
        "wall_seconds": round(time.monotonic() - begun),
    }
    return before | {
        "parts": {**before["parts"], **dict.fromkeys(arguments.parts, own)},
        "verifier": info.model_id,
        "weights_digest": info.weights_digest,
        "restorer": evaluation.restoring.description,
        "facts": arguments.facts,
        "sink_tokens": arguments.sink,
        "window_tokens": arguments.window,
        "seed": arguments.seed,
        "anatomy_cases": arguments.anatomy_cases,
        "notes": NOTES,
        **measured,
    }


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--verifier", default="tiny")
    parser.add_argument("--restorer", default="tiny-dflash", help="whose learned map; none: ''")
    parser.add_argument("--strategies", nargs="+", choices=list(STRATEGIES), default=None)
    parser.add_argument(
        "--parts", nargs="+", choices=(RECALL, CONTROLS), default=[RECALL, CONTROLS]
    )
    parser.add_argument("--contexts", nargs="+", type=int, default=list(CONTEXTS))
    parser.add_argument("--cases", type=int, default=200, help="of a context")
    parser.add_argument("--plumbing-cases", type=int, default=40, help="of restored identity")
    parser.add_argument("--anatomy-cases", type=int, default=12, help="that are looked into")
    parser.add_argument("--facts", type=int, default=1, help="of a case; one is asked for")
    parser.add_argument("--control-contexts", nargs="+", type=int, default=[256, 1000])
    parser.add_argument("--control-cases", type=int, default=100, help="of a control and context")
    parser.add_argument("--decode-tokens", type=int, default=24)
    parser.add_argument("--sink", type=int, default=4)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--corpus", type=Path, default=python_corpus.standard_library())
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--workers", type=int, default=2, help="processes that read prompts")
    parser.add_argument(
        "--archive", default="1GiB", help="bytes, the address of a running one, or local"
    )
    parser.add_argument("--quick", action="store_true", help="two contexts of a few cases")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/needle.json"))
    arguments = parser.parse_args(words)
    if arguments.strategies is None:
        arguments.strategies = [
            name for name in STRATEGIES if arguments.restorer or "projection" not in name
        ]
    if arguments.quick:
        arguments.contexts, arguments.cases, arguments.workers = [96, 160], 3, 1
        arguments.plumbing_cases = arguments.anatomy_cases = 2
        arguments.control_contexts, arguments.control_cases = [96], 3
        arguments.decode_tokens = 6
    return arguments


def main(words: Sequence[str] | None = None) -> None:
    """Evaluates, and writes the report and its tables."""
    arguments = parse(words)
    report = evaluate(arguments)
    write_report(arguments.out, report)
    table = needle_markdown(report)
    arguments.out.with_suffix(".md").write_text(table)
    print(table)


if __name__ == "__main__":
    main()
