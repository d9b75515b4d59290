"""The compiled library as other processors would make it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kakeya_fleet.engine.backends.torch_backend.compiled import library as libraries
from kakeya_fleet.engine.models.model_cache import locked
from tests.support.own_cache import COMPILED

PROCESSORS = (
    "",
    "-march=x86-64-v3",
    "-march=x86-64-v4",
    "-march=x86-64-v4 -mavx512vnni -mavx512bf16",
)
FLAGS = {"v3": "avx2", "v4": "avx512vl", "vnni": "avx512_vnni", "bf16": "avx512_bf16"}


@pytest.fixture(scope="session")
def processors() -> dict[str, libraries.Library]:
    """Those whose instructions this one has, by the options that they are made with."""
    return {
        options: libraries._opened(_made(options)) for options in PROCESSORS if _runs_here(options)
    }


def _made(options: str) -> Path:
    """Beside what is served, one for all workers and runs: its name tells what it is made of."""
    digest = libraries._digest(tuple(options.split())).hexdigest()[:24]
    path = COMPILED / f"unoptimised-{digest}.so"
    with locked(COMPILED, "unoptimised", wait=True):
        if not path.is_file():
            _make(path, options)
    return path


def _make(path: Path, options: str) -> None:
    """Less optimised than what is served: its bits are those."""
    source = Path(libraries.__file__).parent / libraries.SOURCES[0]
    kept = [option for option in libraries.OPTIONS if option != "-O3"]
    beside = path.with_suffix(".new")
    command = ["g++", *kept, "-O0", *options.split(), "-o", str(beside), str(source)]
    subprocess.run(command, check=True)
    beside.replace(path)


def _runs_here(options: str) -> bool:
    flags = libraries._processor_flags()
    return all(flag in flags for word, flag in FLAGS.items() if word in options)
