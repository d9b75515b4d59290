"""The files of both SDKs that hold their values and converters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from scripts.write.descriptors import ROOT, commented
from scripts.write.values import python, typescript
from scripts.write.values.model import contract

PYTHON = Path("sdks/python/kakeya/generated")
TYPESCRIPT = Path("sdks/typescript/src/generated")


def files(described: FileDescriptorSet) -> dict[Path, str]:
    """Every file and its text, by its path in the tree."""
    seen = contract(commented(described))
    return {
        PYTHON / "values.py": _by_ruff(python.values(seen)),
        PYTHON / "wire.py": _by_ruff(python.wire(seen)),
        TYPESCRIPT / "values.ts": _by_prettier(typescript.values(seen)),
        TYPESCRIPT / "wire.ts": _by_prettier(typescript.wire(seen)),
    }


def _by_ruff(text: str) -> str:
    ruff = Path(sys.executable).parent / "ruff"
    return _formatted(text, str(ruff), "format", "--stdin-filename", str(PYTHON / "values.py"))


def _by_prettier(text: str) -> str:
    prettier = ROOT / "node_modules" / ".bin" / "prettier"
    return _formatted(text, str(prettier), "--stdin-filepath", str(TYPESCRIPT / "values.ts"))


def _formatted(text: str, *command: str) -> str:
    done = subprocess.run(
        command, cwd=ROOT, input=text, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout
