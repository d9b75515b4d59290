"""How long a verifier of a GGUF takes to be ready, and what memory it has at its peak.

    python -m scripts.bench.model_loading --out benchmarks/model_loading.json

Each start is a real `fleet join`: the first has an empty cache and converts the file, the
others find what it made. Told are the seconds from the start of the process until it is ready,
the agent's peak of resident memory, and the bytes of the weights in the number format.
"""

from __future__ import annotations

import argparse
import os
import secrets
import tempfile
import time
from pathlib import Path

from scripts.bench.machine import command, machine, write_report
from scripts.support.agent_process import LocalFleet


def main() -> None:
    """Starts the agent as often as asked, one after the other, and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kakeya-cache-") as cache:
        starts = [
            _start(arguments.model, arguments.dtype, Path(cache)) for _ in range(arguments.starts)
        ]
        weights = sum(path.stat().st_size for path in Path(cache).rglob("*.safetensors"))
    report = {
        "command": command(__file__),
        "machine": machine(),
        "load_average": os.getloadavg()[0],
        "model": arguments.model,
        "dtype": arguments.dtype,
        "weight_bytes": weights,
        "first_seconds": starts[0][0],
        "later_seconds": [seconds for seconds, _ in starts[1:]],
        "peak_bytes": [peak for _, peak in starts],
    }
    write_report(arguments.out, report)
    print(report)


def _start(model: str, dtype: str, cache: Path) -> tuple[float, int]:
    """Seconds until an agent is ready that serves `model`, and its peak of resident bytes."""
    environment = {"XDG_CACHE_HOME": str(cache), "KAKEYA_DTYPE": dtype}
    with LocalFleet(f"loading-{secrets.token_hex(4)}") as fleet:
        began = time.monotonic()
        agent = fleet.start("loading", serve=(f"verifier={model}",), environment=environment)
        assert agent.ready
        agent.wait_for("ready", seconds=600)
        seconds = time.monotonic() - began
        status = Path(f"/proc/{agent.pid}/status").read_text()
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return seconds, int(peak.split()[1]) * 1024


if __name__ == "__main__":
    main()
