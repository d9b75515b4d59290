"""The compiled library as other processors would make it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kakeya_fleet.engine.backends.torch_backend.compiled import library as libraries

PROCESSORS = (
    "",
    "-march=x86-64-v3",
    "-march=x86-64-v4",
    "-march=x86-64-v4 -mavx512vnni -mavx512bf16",
)
FLAGS = {"v3": "avx2", "v4": "avx512vl", "vnni": "avx512_vnni", "bf16": "avx512_bf16"}


@pytest.fixture(scope="session")
def processors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, libraries.Library]:
    """Those whose instructions this one has, by the options that they are made with."""
    folder = tmp_path_factory.mktemp("processors")
    return {options: _built(options, folder) for options in PROCESSORS if _runs_here(options)}


def _built(options: str, folder: Path) -> libraries.Library:
    """Less optimised than what is served: its bits are those."""
    path = folder / f"of{options.replace(' ', '')}.so"
    source = Path(libraries.__file__).parent / libraries.SOURCES[0]
    kept = [option for option in libraries.OPTIONS if option != "-O3"]
    command = ["g++", *kept, "-O0", *options.split(), "-o", str(path), str(source)]
    subprocess.run(command, check=True)
    return libraries._opened(path)


def _runs_here(options: str) -> bool:
    flags = libraries._processor_flags()
    return all(flag in flags for word, flag in FLAGS.items() if word in options)
