"""Generates the Python stubs of proto/ into sdks/python/kakeya/v1.

`--check` writes nothing and exits with 1 when the stubs in the tree differ
from what the .proto files give. Run with grpcio-tools 1.76.0, the oldest that
is supported: stubs of a newer generator refuse older runtimes.
"""

from __future__ import annotations

import argparse
import importlib.resources
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "proto"
TARGET = ROOT / "sdks" / "python"
SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi")


def generate(target: Path) -> list[Path]:
    """Writes the stubs below `target`; returns their paths relative to it."""
    well_known = importlib.resources.files("grpc_tools") / "_proto"
    files = sorted(str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.proto"))
    plugins = Path(sys.executable).parent
    status = protoc.main(
        [
            "protoc",
            f"-I{SOURCES}",
            f"-I{well_known}",
            f"--plugin=protoc-gen-mypy={plugins / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={plugins / 'protoc-gen-mypy_grpc'}",
            f"--python_out={target}",
            f"--grpc_python_out={target}",
            f"--mypy_out=quiet:{target}",
            f"--mypy_grpc_out=quiet:{target}",
            *files,
        ]
    )
    if status != 0:
        raise SystemExit(f"protoc failed with status {status}")
    return sorted(
        path.relative_to(target)
        for path in target.rglob("*")
        if path.name.endswith(SUFFIXES) and path.is_file()
    )


def differences() -> list[str]:
    """Stubs in the tree that are missing, stale or orphaned, by name."""
    with tempfile.TemporaryDirectory() as scratch:
        fresh_root = Path(scratch)
        fresh = generate(fresh_root)
        found = [
            str(name)
            for name in fresh
            if not (TARGET / name).is_file()
            or (TARGET / name).read_bytes() != (fresh_root / name).read_bytes()
        ]
        committed = {
            path.relative_to(TARGET)
            for path in (TARGET / "kakeya" / "v1").rglob("*")
            if path.name.endswith(SUFFIXES)
        }
        return found + sorted(str(name) for name in committed - set(fresh))


def main() -> None:
    """Generates, or checks with --check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 on a difference"
    )
    arguments = parser.parse_args()
    if not arguments.check:
        print(f"wrote {len(generate(TARGET))} stubs")
        return
    stale = differences()
    if stale:
        print("stubs differ from proto/, run `make stubs`:", *stale, sep="\n  ")
        raise SystemExit(1)
    print("stubs match proto/")


if __name__ == "__main__":
    main()
