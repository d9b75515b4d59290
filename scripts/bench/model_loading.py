"""How long a verifier takes to be ready, and what memory it has at its peak.

    python -m scripts.bench.model_loading --out benchmarks/model_loading.json

Each start is a real `fleet join`. With an empty cache the first converts a GGUF, compiles the
decoder and checks the model's exactness; the others find what it made, as all later starts of
a user do. Told are the seconds from the start of the process until it is ready, the agent's
peak of resident memory over that of one that serves `tiny`, with the same libraries, and the
bytes of the weights. One of `SHAPES` is a model of random weights, bfloat16.
"""

from __future__ import annotations

import argparse
import os
import secrets
import statistics
import tempfile
import time
from pathlib import Path

from scripts.bench.decode_models import SHAPES, random_checkpoint, weight_bytes
from scripts.bench.machine import command, machine, write_report
from scripts.support.agent_process import LocalFleet

MODELS = ("smollm2", "Llama-3.2-1B")
SMALL = "tiny"


def main() -> None:
    """Starts an agent as often as asked for each model, and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--starts", type=int, default=4)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kakeya-loading-") as folder:
        cache = Path(folder) / "cache"
        # What it compiles is for all: of each model the first start tells of that model alone.
        small = [_start(SMALL, arguments.dtype, cache) for _ in range(2)]
        told = {
            model: _told(model, arguments.dtype, arguments.starts, Path(folder), small[-1][1])
            for model in arguments.models
        }
    report = {
        "command": command(__file__),
        "machine": machine(),
        "load_average": os.getloadavg()[0],
        "dtype": arguments.dtype,
        "libraries": {"model": SMALL, "peak_bytes": small[-1][1], "seconds": small[-1][0]},
        "models": told,
    }
    write_report(arguments.out, report)
    print(report)


def _told(model: str, dtype: str, starts: int, folder: Path, libraries: int) -> dict[str, object]:
    cache = folder / "cache"
    is_shape = model in SHAPES
    spec = str(random_checkpoint(model, "bfloat16", folder)) if is_shape else model
    found = [_start(spec, dtype, cache) for _ in range(starts)]
    weights = sum(weight_bytes(each.parent) for each in _weights(Path(spec) if is_shape else cache))
    peak = max(peak for _, peak in found)
    return {
        "weight_bytes": weights,
        "first_seconds": found[0][0],
        "later_seconds": [seconds for seconds, _ in found[1:]],
        "later_median_seconds": statistics.median(seconds for seconds, _ in found[1:]),
        "peak_bytes": [peak for _, peak in found],
        "peak_over_libraries_of_weights": (peak - libraries) / weights,
    }


def _weights(folder: Path) -> list[Path]:
    """The one file of weights below `folder`."""
    (found,) = folder.rglob("*.safetensors")
    return [found]


def _start(model: str, dtype: str, cache: Path) -> tuple[float, int]:
    """Seconds until an agent is ready that serves `model`, and its peak of resident bytes."""
    environment = {"XDG_CACHE_HOME": str(cache), "KAKEYA_DTYPE": dtype}
    with LocalFleet(f"loading-{secrets.token_hex(4)}") as fleet:
        began = time.monotonic()
        agent = fleet.start("loading", serve=(f"verifier={model}",), environment=environment)
        agent.wait_for("ready", seconds=600)
        seconds = time.monotonic() - began
        status = Path(f"/proc/{agent.pid}/status").read_text()
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return seconds, int(peak.split()[1]) * 1024


if __name__ == "__main__":
    main()
