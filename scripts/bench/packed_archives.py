"""What packed archives cost and save: sessions of each quality over two nodes.

    python -m scripts.bench.packed_archives --out benchmarks/packed_archives.json

A node serves the model, another an archive. Each round opens a session of each kind in turn,
`full` among them, with the same text of this repository's docs, and lets it speak alone,
greedily: so all see the same noise of the machine. Told are the seconds of the prompt, the tokens
a second of the answer behind its first token, the archive's bytes for a position, and how many
tokens of the answer are those of full attention before the first other one. Medians of the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kakeya import Client, Session
from scripts.bench.machine import ROOT, command, machine, write_report
from scripts.support.agent_process import AgentProcess, LocalFleet

FULL = "full"
KINDS = (FULL, "lossless", "high", "economy")
PAGES = ("long-sessions.md", "members.md", "models.md", "under-attack.md")
SINK = 64
READY_SECONDS = 60.0


@dataclass(slots=True)
class Cell:
    """What the sessions of one kind took behind one length of context."""

    prompt_seconds: list[float] = field(default_factory=list)
    tokens_per_second: list[float] = field(default_factory=list)
    evicted_positions: int = 0
    evicted_bytes: int = 0
    codec: str = ""
    answer: tuple[int, ...] = ()

    def told(self, full: Cell) -> dict[str, Any]:
        """For the report; `full` is the cell of full attention."""
        pairs = zip(self.answer, full.answer, strict=False)
        same = next((at for at, (own, other) in enumerate(pairs) if own != other), None)
        return {
            "codec": self.codec,
            "prompt_seconds": statistics.median(self.prompt_seconds),
            "tokens_per_second": statistics.median(self.tokens_per_second),
            "evicted_positions": self.evicted_positions,
            "evicted_bytes": self.evicted_bytes,
            "equal_tokens": len(self.answer) if same is None else same,
        }


def text_tokens(client: Client, model: str, count: int) -> Sequence[int]:
    """The first tokens of the docs."""
    text = "\n\n".join((ROOT / "docs" / page).read_text("utf-8") for page in PAGES)
    tokens = client.text(model).encode(text)
    if len(tokens) < count:
        raise SystemExit(f"the docs have {len(tokens)} tokens of {model}, {count} are asked for")
    return tokens[:count]


def opened(client: Client, model: str, kind: str, window: int, tokens: Sequence[int]) -> Session:
    """A session that has read the tokens, and drafts nothing."""
    if kind == FULL:
        return client.create_session(model, tokens=tokens, kv_strategy=FULL, speculation="off")
    return client.create_session(
        model,
        tokens=tokens,
        kv_strategy="restored",
        sink_tokens=SINK,
        window_tokens=window,
        speculation="off",
        kv_quality=kind,
    )


def measure(
    client: Client,
    model: str,
    kind: str,
    window: int,
    tokens: Sequence[int],
    cell: Cell,
    answer: int,
) -> None:
    """One session into its cell."""
    began = time.perf_counter()
    with opened(client, model, kind, window, tokens) as session:
        cell.prompt_seconds.append(time.perf_counter() - began)
        found: list[int] = []
        first = 0.0
        for committed in session.generate(answer):
            first = first or time.perf_counter()
            found.extend(committed.token_ids)
        seconds = time.perf_counter() - first
        cell.tokens_per_second.append((len(found) - 1) / seconds)
        cell.answer = tuple(found)
        restorer = session.info().restorer
        if restorer is not None:
            cell.codec = restorer.codec
            cell.evicted_positions = restorer.evicted_token_count
            cell.evicted_bytes = restorer.evicted_bytes


def served_model(client: Client, verifier: AgentProcess) -> str:
    """The id of what the verifier serves."""
    cards = (node for node in client.fleet.nodes() if node.node_id == verifier.node_id)
    return next(offer.model_id for node in cards for offer in node.models)


def until_known(client: Client, archive: AgentProcess) -> None:
    """Waits until the verifier's node knows the archive, and the way to it."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        for node in client.fleet.nodes():
            if node.node_id == archive.node_id and node.round_trip_seconds:
                return
        time.sleep(0.1)
    raise SystemExit("the nodes did not find each other")


def report(arguments: argparse.Namespace) -> dict[str, Any]:
    """All cells."""
    cells = {length: {kind: Cell() for kind in KINDS} for length in arguments.contexts}
    with LocalFleet("bench-packed") as fleet:
        verifier = fleet.start("verifier", serve=(f"verifier={arguments.model}",))
        archive = fleet.start("archive", serve=("archive=4GiB",), peers=(verifier.address,))
        with Client(verifier.address) as client:
            until_known(client, archive)
            model = served_model(client, verifier)
            for turn in range(arguments.rounds):
                for length in arguments.contexts:
                    tokens = text_tokens(client, model, length)
                    for kind in KINDS:
                        measure(
                            client,
                            model,
                            kind,
                            arguments.window,
                            tokens,
                            cells[length][kind],
                            arguments.answer,
                        )
                        rate = cells[length][kind].tokens_per_second[-1]
                        print(f"round {turn + 1}, {length} tokens, {kind}: {rate:.1f} tokens/s")
    return {
        "command": command(__file__),
        "machine": machine(),
        "model": arguments.model,
        "window": arguments.window,
        "answer_tokens": arguments.answer,
        "rounds": arguments.rounds,
        "by_context": {
            str(length): {kind: cell.told(of_kind[FULL]) for kind, cell in of_kind.items()}
            for length, of_kind in cells.items()
        },
    }


def parser() -> argparse.ArgumentParser:
    """The options, each with its default."""
    found = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--model", default="smollm2")
    found.add_argument("--contexts", type=int, nargs="+", default=[1024, 3072])
    found.add_argument("--window", type=int, default=256)
    found.add_argument("--answer", type=int, default=48)
    found.add_argument("--rounds", type=int, default=3)
    found.add_argument("--out", type=Path, required=True)
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Measures, and writes the report."""
    arguments = parser().parse_args(words)
    write_report(arguments.out, report(arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
