"""Compiled libraries for this processor, the decoder's first: found, or made by its compiler.

A wheel brings none: the sources lie beside this file, and are compiled once a version and kind
of processor into the user's cache, which takes some seconds. Where that cannot be, torch's own
operators compute, and `unavailable` says why.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import structlog
import torch
from platformdirs import user_cache_path

from kakeya_fleet.engine.backends.torch_backend.compiled.pair_check import pairs_are_right
from kakeya_fleet.engine.backends.torch_backend.compiled.structs import VERSION, declare
from kakeya_fleet.engine.models.model_cache import locked

SWITCH = "KAKEYA_COMPILED"
"""`off` in the environment has torch's own operators compute."""
FOLDER = Path(__file__).parent
COMPILERS = ("c++", "g++", "clang++")
HEADERS = (
    "decoder.h",
    "ahead.h",
    "attention.h",
    "attention_parts.h",
    "store_reads.h",
    "tile_calls.h",
    "weight_rows.h",
    "product.h",
    "number_sums.h",
    "block_sums.h",
    "preview.h",
    "rounding.h",
    "steps.h",
    "packed_attention.h",
    "levels.h",
    "unpack.h",
    "pack.h",
    "lanes.h",
    "workers.h",
    "places.h",
)
SOURCES = ("decoder.cpp", *HEADERS)
OPTIONS = (
    "-std=c++20",
    "-O3",
    # A sum's order and its roundings are the source's.
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fPIC",
    "-shared",
    # A loader would give a thread's memory to all libraries of a process once: it is laid out for
    # one processor's. The headers say what is called from outside.
    "-fvisibility=hidden",
    "-pthread",
    # Older compilers' own vector headers are warned about by the thousand.
    "-w",
)
# By what torch says of the processor: https://pytorch.org/docs/stable/backends.html
PROCESSORS = {"AVX512": "x86-64-v4", "AVX2": "x86-64-v3"}
PAIRS_OPTION = "-mavx512bf16"
IN_ONE_INSTRUCTION = {"avx512_vnni": "-mavx512vnni", "avx512_bf16": PAIRS_OPTION}
"""Products of bytes and of pairs, of the same bits as those in several, by Linux's names."""
COMPILE_SECONDS = 300.0
"""Ten times what it takes on one core of a small machine: others may have the rest of it."""
ROOM_BYTES = 8 << 20
"""Asked for before compiling: a compiler finds a disk full when its work is done. All of its files
are 3 MB."""

_log = structlog.get_logger(__name__)


class CompilingFailed(Exception):
    """There is no library for this processor, and none could be made."""


@dataclass(frozen=True, slots=True)
class Library:
    """The functions of a library's header."""

    functions: ctypes.CDLL
    path: Path


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a library is made of, and how its functions are called.

    `sources` beside this file, the one that is compiled first; `version` is that which the
    library is to tell, and `declare` says what its functions take.
    """

    name: str
    sources: tuple[str, ...]
    version: int
    declare: Callable[[ctypes.CDLL], None]


DECODER = Recipe("decoder", SOURCES, VERSION, declare)


@lru_cache(maxsize=1)
def library() -> Library | None:
    """The library, made if need be; None where torch's own operators are to compute.

    Of several threads that ask at once one makes it, and the others wait.
    """
    if _is_off():
        return None
    try:
        options = _processor_options()
        found = _opened(_made(options))
        if PAIRS_OPTION in options and not pairs_are_right(found.functions):
            # In two operations they are right on every processor.
            _log.warning("products_of_pairs_unused", cause="other bits than in two operations")
            found = _opened(_made(tuple(each for each in options if each != PAIRS_OPTION)))
    except CompilingFailed as failure:
        _log.warning("compiled_decoder_unavailable", cause=str(failure), slower=True)
        return None
    return found


def library_of(recipe: Recipe) -> Library | None:
    """That of `recipe`, made if need be; None where there is none for the decoder.

    None too where it cannot be made, which the log tells.
    """
    if library() is None:
        return None
    try:
        return _opened(_made(_processor_options(), recipe), recipe)
    except CompilingFailed as failure:
        _log.warning("compiled_library_unavailable", library=recipe.name, cause=str(failure))
        return None


def will_be() -> bool:
    """Whether `library` is likely to find or make one; makes none, and opens none."""
    if _is_off():
        return False
    try:
        options = _processor_options()
    except CompilingFailed:
        return False
    return _target(options).is_file() or _compiler() is not None


def arithmetic() -> str:
    """Names what the library computes: the same bits on each processor that it is made for."""
    return f"decoder {_digest(()).hexdigest()[:12]}"


def _is_off() -> bool:
    return os.environ.get(SWITCH, "").lower() == "off"


def _digest(options: tuple[str, ...], recipe: Recipe = DECODER) -> hashlib._Hash:
    """Of the sources, and of how they are compiled."""
    digest = hashlib.sha256(" ".join((*OPTIONS, *options)).encode())
    for name in recipe.sources:
        digest.update((FOLDER / name).read_bytes())
    return digest


_making = threading.Lock()


def _made(options: tuple[str, ...], recipe: Recipe = DECODER) -> Path:
    """The library's file. Raises `CompilingFailed`."""
    target = _target(options, recipe)
    with _making:
        if not target.is_file():
            _make(target, options, recipe)
    return target


def _make(target: Path, options: tuple[str, ...], recipe: Recipe) -> None:
    """Of several processes that ask at once one compiles; the others wait, and find it made."""
    compiler = _compiler()
    if compiler is None:
        raise CompilingFailed(f"no C++ compiler is here: install one of {', '.join(COMPILERS)}")
    try:
        with locked(target.parent, target.name, wait=True):
            if not target.is_file():
                _compile(compiler, target, options, recipe)
    except OSError as error:
        raise CompilingFailed(f"{target.parent} cannot be written: {error}") from error


def _compile(compiler: str, target: Path, options: tuple[str, ...], recipe: Recipe) -> None:
    """Raises `CompilingFailed`, and `OSError` where the folder cannot be written."""
    _require_room(target.parent)
    with tempfile.TemporaryDirectory(dir=target.parent) as beside:
        made = Path(beside) / target.name
        source = FOLDER / recipe.sources[0]
        try:
            subprocess.run(
                [compiler, *OPTIONS, *options, "-o", str(made), str(source)],
                check=True,
                capture_output=True,
                text=True,
                timeout=COMPILE_SECONDS,
                # What it keeps meanwhile goes with the folder, also when it is killed.
                env={**os.environ, "TMPDIR": beside},
            )
        except subprocess.TimeoutExpired as error:
            raise CompilingFailed(f"{compiler} took longer than {COMPILE_SECONDS:g} s") from error
        except subprocess.CalledProcessError as error:
            lines = str(error.stderr).strip().splitlines() or ["it says nothing"]
            raise CompilingFailed(f"{compiler} failed: {lines[0]}") from error
        made.replace(target)


def _require_room(folder: Path) -> None:
    """Raises `CompilingFailed` where the compiler's files have no room, and `OSError`."""
    free = shutil.disk_usage(folder).free
    if free < ROOM_BYTES:
        raise CompilingFailed(
            f"{folder} has {free} bytes free, {ROOM_BYTES} are needed to compile: free the disk"
        )


def _target(options: tuple[str, ...], recipe: Recipe = DECODER) -> Path:
    """Where the library's file is, or would be."""
    digest = _digest(options, recipe).hexdigest()
    return user_cache_path("kakeya") / "compiled" / f"{recipe.name}-{digest[:24]}.so"


def _compiler() -> str | None:
    return next(filter(None, map(shutil.which, COMPILERS)), None)


def _processor_options() -> tuple[str, ...]:
    """What the compiler is told of the processor. Raises `CompilingFailed`."""
    machine = platform.machine().lower()
    if machine in ("arm64", "aarch64"):
        return ()
    capability = torch.backends.cpu.get_cpu_capability()
    if machine in ("x86_64", "amd64") and capability in PROCESSORS:
        flags = _processor_flags() if capability == "AVX512" else frozenset()
        more = [option for flag, option in IN_ONE_INSTRUCTION.items() if flag in flags]
        return (f"-march={PROCESSORS[capability]}", *more)
    raise CompilingFailed(f"a {machine} processor ({capability}) has no fused multiply-add")


def _processor_flags() -> frozenset[str]:
    """As Linux tells them; none elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    told = next((line for line in lines if line.startswith("flags")), "")
    return frozenset(told.partition(":")[2].split())


def _opened(path: Path, recipe: Recipe = DECODER) -> Library:
    try:
        functions = ctypes.CDLL(str(path))
    except OSError as error:
        raise CompilingFailed(f"{path} cannot be loaded: {error}") from error
    recipe.declare(functions)
    if functions.kakeya_version() != recipe.version:
        raise CompilingFailed(f"{path} is of another version: delete it")
    return Library(functions, path)
