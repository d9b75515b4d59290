"""A process that loads checkpoints and tells the peak of each: for `test_loading_memory`.

    python -m tests.support.loading_peaks CASES

CASES is a JSON list of [folder, small folder, weights, switch of the compiled forward]. Written
are bytes, a JSON list of numbers: how far resident memory rose at most above what the process had
before, pages of mapped files included. What is small of the same architecture is loaded first, so
that libraries are there.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.torch_backend.compiled.library import SWITCH, library
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.models.model_folder import ModelFolder
from scripts.bench.process_memory import PeakMemory


def main() -> None:
    """Loads what the command line says."""
    peaks = []
    for folder, small, weights, switch in json.loads(sys.argv[1]):
        os.environ[SWITCH] = switch
        library.cache_clear()
        _load(small, weights)
        with PeakMemory() as peak:
            _load(folder, weights)
        peaks.append(peak.bytes)
    sys.stdout.write(json.dumps(peaks))


def _load(folder: str, weights: str) -> Verifier:
    return load_verifier(
        ModelFolder(Path(folder), "model"), backend="torch", dtype="auto", weights=weights
    )


if __name__ == "__main__":
    main()
