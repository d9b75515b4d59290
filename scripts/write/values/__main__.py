"""Writes the values and converters of both SDKs, from the comments and descriptors of proto/.

python -m scripts.write.values
python -m scripts.write.values --check    # exit status 1 when a file is another
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from scripts.write.contract_reference import ROOT, read
from scripts.write.values import python, typescript
from scripts.write.values.model import contract

PYTHON = ROOT / "sdks" / "python" / "kakeya" / "generated"
TYPESCRIPT = ROOT / "sdks" / "typescript" / "src" / "generated"


def written() -> dict[Path, str]:
    """What each file has to be."""
    seen = contract(read())
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
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def main() -> int:
    """Writes or checks the files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="only compare")
    files = written()
    if not parser.parse_args().check:
        for path, text in files.items():
            path.write_text(text, "utf-8")
        print(f"wrote {len(files)} files")
        return 0
    stale = [
        str(path.relative_to(ROOT))
        for path, text in files.items()
        if not path.exists() or path.read_text("utf-8") != text
    ]
    if stale:
        print("values differ from proto/, run `make stubs`:", *stale, sep="\n  ")
        return 1
    print("values match proto/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
