"""What `settle` found out about a verifier, kept on disk for its next load on this machine.

The check takes seconds, more than all else of a small model's load, and finds the same
each time: it is about shapes, threads, kernels and the processor that they run on. All of
these are in a record's key, so that whatever changes one of them checks anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import threading
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path

import structlog
from platformdirs import user_cache_path

from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.verifiers.exactness import Exactness, settle

MOST_RECORDS = 256
"""The oldest go first: every release of the fleet or of a library checks anew."""
CHOOSE_KERNELS = (
    "ATEN_",
    "CUBLAS_",
    "DNNL_",
    "MKL_",
    "MLX_",
    "NVIDIA_",
    "OMP_",
    "ONEDNN_",
    "PYTORCH_",
    "TORCH_",
)
"""Variables of the environment by which libraries choose kernels begin so."""
ENGINE = Path(__file__).parents[1]
SOURCES = (".py", ".h", ".cpp")

_log = structlog.get_logger(__name__)


def records_folder() -> Path:
    """Where they are: a file each in this user's cache."""
    return user_cache_path("kakeya") / "exactness"


def settle_once(verifier: Verifier, arithmetic: str, *, seed: int = 0) -> Exactness:
    """As `exactness.settle`, which checks where nothing is known.

    `arithmetic`: what rounds its forwards besides their shapes, or empty where nobody
    can say: then nothing is kept. Leaves `verifier` as `settle` leaves it. A folder
    that cannot be used is said in the log, and costs the check alone.
    """
    if not arithmetic:
        return settle(verifier, seed=seed)
    path = records_folder() / f"{_key(verifier, arithmetic, seed)}.json"
    known = _read(path)
    if known is not None and _is_of(verifier, known):
        _log.info("exactness_known", model=verifier.info.model_id, exact=known.exact)
        verifier.use_row_counts(known.row_counts)
        return known
    found = settle(verifier, seed=seed)
    try:
        _keep(path, found)
    except OSError as error:
        _log.warning("exactness_not_kept", folder=str(path.parent), cause=str(error))
    return found


def _keep(path: Path, found: Exactness) -> None:
    """Whole or not at all: another process may read at any moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    partial.write_text(json.dumps(asdict(found)) + "\n")
    partial.replace(path)
    records = sorted(path.parent.glob("*.json"), key=_written_at)
    for old in records[:-MOST_RECORDS]:
        old.unlink(missing_ok=True)


def _is_of(verifier: Verifier, known: Exactness) -> bool:
    """Whether a record can be of this verifier: whoever edits one must not end a load."""
    return (
        set(known.row_counts) <= set(verifier.row_counts)
        and known.row_counts[-1] >= verifier.info.width
        and known.thread_count == verifier.thread_count
    )


def _read(path: Path) -> Exactness | None:
    """What a record says; None without one, or where it is none."""
    try:
        told = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        _log.warning("exactness_unreadable", file=str(path), cause=str(error))
        return None
    match told:
        case {
            "exact": bool(exact),
            "row_counts": [*counts],
            "thread_count": int(thread_count),
        } if counts and all(type(count) is int and count > 0 for count in counts):
            return Exactness(exact, tuple(counts), thread_count)
    _log.warning("exactness_unreadable", file=str(path), cause="not a record")
    return None


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _key(verifier: Verifier, arithmetic: str, seed: int) -> str:
    made_by = type(verifier)
    parts = {
        "verifier": f"{made_by.__module__}.{made_by.__qualname__}",
        # What people call it changes nothing.
        "info": asdict(replace(verifier.info, model_id="")),
        "row_counts": list(verifier.row_counts),
        "threads": verifier.thread_count,
        "arithmetic": arithmetic,
        "seed": seed,
        "environment": _chooses_kernels(os.environ),
        "processor": _processor(),
        "engine": _engine_digest(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _chooses_kernels(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: told for name, told in environment.items() if name.startswith(CHOOSE_KERNELS)}


@lru_cache(maxsize=1)
def _processor() -> str:
    """Its model and instructions, as Linux tells them; elsewhere the platform's name for it."""
    told = f"{platform.machine()} {platform.processor()}"
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return told
    wanted = ("model name", "flags", "Features", "CPU part")
    found = {line.partition(":")[0].strip(): line.partition(":")[2].strip() for line in lines}
    return " ".join((told, *(found.get(name, "") for name in wanted)))


@lru_cache(maxsize=1)
def _engine_digest() -> str:
    """Of the sources that compute: in a checkout they change without a release."""
    digest = hashlib.sha256()
    for path in sorted(each for each in ENGINE.rglob("*") if each.suffix in SOURCES):
        digest.update(f"{path.relative_to(ENGINE)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
