"""What `fleet fit` says of a model's memory, and what a process that loads it takes.

    python -m scripts.bench.fitted_memory --out benchmarks/fitted_memory.json

Each model, number format and `--weights` in a process of its own, on torch: it loads a model of
the same architecture of a few kilobytes, so that libraries are there, and then the one that is
measured. Told are, over what the process had before: the high-water mark while the weights are
read (VmHWM, reset before), what is resident behind it, the mark while exactness is checked, as the
first load of a model does, and the mark while a session of `--context` tokens is computed in
chunks, with its keys and values. Pages of mapped files count in all of them, although the system
can take those back: what is told is never less than what cannot be taken back. The small model's
own tensors are among what was there before.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.backends.on_paper import read_on_paper
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.model_on_paper import ModelOnPaper
from scripts.bench.decode_models import SHAPES, random_checkpoint
from scripts.bench.machine import ROOT, command, machine, write_report

MODELS = ("smollm2", "Qwen3-0.6B", "Gemma-3-270M")
SMALLER: dict[str, dict[str, int]] = {
    "Qwen3-0.6B": {"num_hidden_layers": 8, "vocab_size": 32_768},
    "Gemma-3-270M": {"vocab_size": 65_536},
}
"""Of the shapes: a few hundred megabytes."""
SIDES = {
    "auto": ("auto", "auto", "auto"),
    "bf16": ("auto", "bf16", "auto"),
    "int8": ("auto", "int8", "auto"),
    "int4": ("auto", "int4", "auto"),
    "float32": ("float32", "auto", "auto"),
    "operators": ("auto", "auto", "off"),
}
"""Number format, `--weights`, and the compiled forward's switch: `off` for torch's operators."""
SWITCH = "KAKEYA_COMPILED"


@dataclass(frozen=True, slots=True)
class Measured:
    """Bytes over what the process had before, as the module says."""

    loading: int
    loaded: int
    checking: int
    session: int


def main(words: list[str] | None = None) -> int:
    """Measures each model in each way, and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=MODELS, help=f"and {', '.join(SHAPES)}")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    if arguments.measure:
        print(json.dumps(asdict(_measured(**json.loads(arguments.measure)))))
        return 0
    told: dict[str, object] = {}
    report = {
        "command": command(__file__),
        "machine": machine(),
        "load_average": os.getloadavg()[0],
        "context": arguments.context,
        "models": told,
    }
    with tempfile.TemporaryDirectory(prefix="kakeya-memory-") as folder:
        for model in arguments.models:
            told[model] = _told(model, arguments.sides, arguments.context, Path(folder))
            if arguments.out:
                write_report(arguments.out, report)
    return 0


def _told(model: str, sides: Sequence[str], context: int, parent: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for side in sides:
        dtype, weights, compiled = SIDES[side]
        if model in SHAPES:
            path = random_checkpoint(model, "bfloat16", parent, **SMALLER.get(model, {}))
        else:
            path = resolve_model(model, dtype=dtype).path
        with _environment(compiled):
            paper = read_on_paper(str(path), backend="torch", dtype=dtype)
        positions = min(context, paper.layout.context_length)
        asked = {"path": str(path), "dtype": dtype, "weights": weights, "context": positions}
        found[side] = _compared(paper, weights, _apart(asked, compiled), positions)
        print(model, side, found[side], flush=True)
    return found


@contextmanager
def _environment(compiled: str) -> Iterator[None]:
    """With the compiled forward, or without."""
    os.environ[SWITCH] = compiled
    try:
        yield
    finally:
        del os.environ[SWITCH]


def _compared(
    paper: ModelOnPaper, weights: str, taken: Measured, context: int
) -> dict[str, object]:
    kept, loading = paper.weight_bytes[weights], paper.loading_bytes[weights]
    cache = CacheSpec(CacheKind.CONTIGUOUS, capacity=context)
    computing = kept + paper.working_bytes
    checking = computing + paper.checking_bytes
    session = computing + paper.layout.bytes_needed(cache)
    return {
        "weight_bytes": kept,
        "loading_bytes": loading,
        "checking_bytes": checking,
        "session_bytes": session,
        "taken": asdict(taken),
        "loading_over_weights": taken.loading / kept,
        "loading_said_over_taken": loading / taken.loading,
        "checking_said_over_taken": checking / taken.checking,
        "session_said_over_taken": session / taken.session,
    }


def _apart(asked: Mapping[str, object], compiled: str) -> Measured:
    """What a process of its own measures."""
    done = subprocess.run(
        [sys.executable, "-m", "scripts.bench.fitted_memory", "--measure", json.dumps(asked)],
        cwd=ROOT,
        env={**os.environ, SWITCH: compiled},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return Measured(**json.loads(done.stdout))


def _measured(path: str, dtype: str, weights: str, context: int) -> Measured:
    import psutil  # noqa: PLC0415

    from kakeya_fleet.engine.backends import load_verifier  # noqa: PLC0415
    from kakeya_fleet.engine.models.model_folder import ModelFolder  # noqa: PLC0415
    from kakeya_fleet.engine.verifiers.exactness import settle  # noqa: PLC0415
    from scripts.bench.process_memory import PeakMemory, trim  # noqa: PLC0415
    from scripts.train.tiny_families import save_random_checkpoint  # noqa: PLC0415

    def resident() -> int:
        gc.collect()
        trim()
        found: int = psutil.Process().memory_info().rss
        return found

    architecture = json.loads((Path(path) / "config.json").read_bytes())["architectures"][0]
    with tempfile.TemporaryDirectory() as name:
        save_random_checkpoint(
            Path(name), architecture, hidden_size=64, head_dim=32, intermediate_size=64
        )
        small = load_verifier(
            ModelFolder(Path(name), "small"), backend="torch", dtype=dtype, weights=weights
        )
        settle(small)
        before = resident()
        with PeakMemory() as loading:
            verifier = load_verifier(
                ModelFolder(Path(path), "model"), backend="torch", dtype=dtype, weights=weights
            )
        assert loading.bytes is not None
        loaded = resident()
        with PeakMemory() as checking:
            settle(verifier)
        held = resident()
        with PeakMemory() as session:
            cache = verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=context))
            # The widest forward that is exact on this processor: 64 rows, or fewer.
            rows = verifier.row_counts[-1]
            tokens = list(range(rows))
            while cache.length + rows <= context:
                verifier.forward(cache, tokens, want_logits=False)
            cache.truncate(cache.length - rows)
            verifier.forward(cache, tokens[:16], want_logits=True)
        assert checking.bytes is not None
        assert session.bytes is not None
        return Measured(
            loading=loading.bytes,
            loaded=loaded - before,
            checking=loaded - before + checking.bytes,
            session=held - before + session.bytes,
        )


if __name__ == "__main__":
    raise SystemExit(main())
