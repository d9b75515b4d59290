"""Writes the version of VERSION into every package that carries one.

    python -m scripts.write.versions            after a change of VERSION
    python -m scripts.write.versions --check    fails where a file says another

The clients and the node are released together, so they have one version, and
each that needs another names exactly that one.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Where a version stands: the file, and what is before and behind it.
PLACES = (
    ("pyproject.toml", r'(?m)^(version = ")[^"]+(")'),
    ("pyproject.toml", r'("kakeya\[text\]==)[^"]+(")'),
    ("kakeya_fleet/__init__.py", r'(?m)^(VERSION = ")[^"]+(")'),
    ("sdks/python/pyproject.toml", r'(?m)^(version = ")[^"]+(")'),
    ("sdks/typescript/package.json", r'(?m)^(  "version": ")[^"]+(")'),
    ("dashboard/package.json", r'(?m)^(  "version": ")[^"]+(")'),
    ("dashboard/package.json", r'("@kakeya/runtime": ")[^"]+(")'),
)


def rewritten(text: str, pattern: str, version: str) -> str:
    """`text` with `version` where the pattern finds one. Raises `ValueError` unless it is once."""
    changed, count = re.subn(pattern, rf"\g<1>{version}\g<2>", text)
    if count != 1:
        raise ValueError(f"{pattern} is there {count} times")
    return changed


def main() -> int:
    """Writes, or with --check tells what is otherwise and returns 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    version = (ROOT / "VERSION").read_text().strip()
    wrong = []
    for name, pattern in PLACES:
        path = ROOT / name
        text = path.read_text()
        changed = rewritten(text, pattern, version)
        if changed != text:
            wrong.append(name)
            if not check:
                path.write_text(changed)
    if check and wrong:
        print(f"{', '.join(wrong)}: not version {version}; run python -m scripts.write.versions")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
