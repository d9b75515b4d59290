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
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from scripts.bench.decode_models import SHAPES, random_checkpoint
from scripts.bench.machine import ROOT, command, machine, write_report

MODELS = ("smollm2", "tiny", "Qwen3-0.6B", "Gemma-3-270M")
SMALLER: dict[str, dict[str, int]] = {
    "Qwen3-0.6B": {"num_hidden_layers": 8, "vocab_size": 32_768},
    "Gemma-3-270M": {"vocab_size": 65_536},
}
"""Of the shapes: a few hundred megabytes."""
SIDES = (
    ("auto", "auto"),
    ("auto", "bf16"),
    ("auto", "int8"),
    ("auto", "int4"),
    ("float32", "auto"),
)
"""Number format and `--weights`."""
OPERATORS = "operators"
"""Stands for torch's operators in place of the compiled forward."""


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
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    if arguments.measure:
        print(json.dumps(asdict(_measured(**json.loads(arguments.measure)))))
        return 0
    with tempfile.TemporaryDirectory(prefix="kakeya-memory-") as folder:
        told = {
            model: _told(model, arguments.context, Path(folder)) for model in arguments.models
        }
    report = {
        "command": command(__file__),
        "machine": machine(),
        "load_average": os.getloadavg()[0],
        "context": arguments.context,
        "models": told,
    }
    if arguments.out:
        write_report(arguments.out, report)
    return 0


def _told(model: str, context: int, parent: Path) -> dict[str, object]:
    from kakeya_fleet.engine.backends.model_sources import resolve_model  # noqa: PLC0415
    from kakeya_fleet.engine.backends.on_paper import read_on_paper  # noqa: PLC0415

    found: dict[str, object] = {}
    for dtype, weights in SIDES:
        if model in SHAPES:
            path = random_checkpoint(model, "bfloat16", parent, **SMALLER.get(model, {}))
        else:
            path = resolve_model(model, dtype=dtype).path
        paper = read_on_paper(str(path), backend="torch", dtype=dtype)
        for compiled in ("auto", "off"):
            if compiled == "off" and (weights in ("int8", "int4")):
                continue
            asked = {
                "path": str(path),
                "dtype": dtype,
                "weights": weights,
                "context": min(context, paper.layout.context_length),
            }
            taken = _apart(asked, compiled)
            name = f"{dtype} {weights}" + (f", {OPERATORS}" if compiled == "off" else "")
            print(model, name, paper.weight_bytes[weights], paper.loading_bytes, taken, flush=True)
            found[name] = {"taken": asdict(taken)}
    return found


def _apart(asked: Mapping[str, object], compiled: str) -> Measured:
    """What a process of its own measures."""
    done = subprocess.run(
        [sys.executable, "-m", "scripts.bench.fitted_memory", "--measure", json.dumps(asked)],
        cwd=ROOT,
        env={**os.environ, "KAKEYA_COMPILED": compiled},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return Measured(**json.loads(done.stdout))


def _measured(path: str, dtype: str, weights: str, context: int) -> Measured:
    import psutil  # noqa: PLC0415
    import torch  # noqa: PLC0415

    from kakeya_fleet.engine.backends import load_verifier  # noqa: PLC0415
    from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec  # noqa: PLC0415
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
        sizes = {"hidden_size": 64, "head_dim": 32, "intermediate_size": 64}
        save_random_checkpoint(Path(name), architecture, **sizes)
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
        print("threads", torch.get_num_threads(), "held", held - before, file=sys.stderr)
        with PeakMemory() as session:
            cache = verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=context))
            tokens = list(range(64))
            while cache.length + 64 <= context:
                verifier.forward(cache, tokens, want_logits=False)
            cache.truncate(context - 64)
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
