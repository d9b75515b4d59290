"""Writes what the contract gives: stubs, values of both SDKs, all that is said of errors.

And the dashboard's bounds, which the node declares.

python -m scripts.write.stubs
python -m scripts.write.stubs --check    # writes nothing; exit status 1 on a difference

The stubs are made with grpcio-tools 1.76.0, the oldest that is supported: stubs of a
newer generator refuse older runtimes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from scripts.write import dashboard_limits, error_classes, error_page, error_reasons
from scripts.write.descriptors import ROOT, compiled, run_protoc
from scripts.write.values import files as values

PYTHON = Path("sdks/python")
STUBS = PYTHON / "kakeya" / "v1"
STUB_SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi")


def made() -> dict[Path, str]:
    """Every generated file and its text, by its path in the tree."""
    described = compiled()
    bounds = {Path("dashboard/shared/limits.ts"): dashboard_limits.typescript()}
    return stubs() | errors(described) | values.files(described) | bounds


def stubs() -> dict[Path, str]:
    """What protoc and its plugins make."""
    plugins = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as scratch:
        run_protoc(
            f"--plugin=protoc-gen-mypy={plugins / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={plugins / 'protoc-gen-mypy_grpc'}",
            f"--python_out={scratch}",
            f"--grpc_python_out={scratch}",
            f"--mypy_out=quiet:{scratch}",
            f"--mypy_grpc_out=quiet:{scratch}",
        )
        return {
            PYTHON / path.relative_to(scratch): path.read_text("utf-8")
            for path in Path(scratch).rglob("*")
            if path.is_file()
        }


def errors(described: FileDescriptorSet) -> dict[Path, str]:
    """What is made of the vocabulary of errors."""
    vocabulary = error_reasons.read(described)
    return {
        PYTHON / "kakeya" / "errors.py": error_classes.python(vocabulary),
        Path("sdks/typescript/src/errors.ts"): error_classes.typescript(vocabulary),
        Path("dashboard/shared/remedies.ts"): error_page.dashboard(vocabulary),
        Path("docs/troubleshooting.md"): error_page.page(vocabulary),
    }


def differences(files: Mapping[Path, str]) -> list[str]:
    """Files in the tree that are missing, stale or orphaned, by name."""
    stale = {
        path
        for path, text in files.items()
        if not (ROOT / path).is_file() or (ROOT / path).read_text("utf-8") != text
    }
    committed = {
        path.relative_to(ROOT)
        for path in (ROOT / STUBS).rglob("*")
        if path.name.endswith(STUB_SUFFIXES)
    }
    return sorted(map(str, stale | committed - files.keys()))


def main() -> None:
    """Generates, or checks with --check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="only compare")
    only_check = parser.parse_args().check
    files = made()
    if not only_check:
        for path, text in files.items():
            (ROOT / path).write_text(text, "utf-8")
        print(f"wrote {len(files)} files")
        return
    wrong = differences(files)
    if wrong:
        print("files differ from proto/, run `make stubs`:", *wrong, sep="\n  ")
        raise SystemExit(1)
    print("generated files match proto/")


if __name__ == "__main__":
    main()
