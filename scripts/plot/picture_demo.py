"""Runs the demonstration on a pseudo-terminal and draws what it printed.

python -m scripts.plot.picture_demo benchmarks/demo.svg
"""

from __future__ import annotations

import argparse
import os
import pty
import sys
from pathlib import Path

from rich.text import Text

from scripts.plot.terminal_picture import save

COLUMNS = 112


def recorded() -> tuple[str, int]:
    """What the demonstration printed, with its colours, and its exit code."""
    os.environ["COLUMNS"] = str(COLUMNS)
    os.environ["TERM"] = "xterm-256color"
    printed = bytearray()

    def read(descriptor: int) -> bytes:
        data = os.read(descriptor, 65536)
        printed.extend(data)
        return data

    status = pty.spawn([sys.executable, "-m", "scripts.demo"], read)
    return printed.decode(errors="replace").replace("\r\n", "\n"), os.waitstatus_to_exitcode(status)


def main() -> None:
    """Records and draws; exits with the demonstration's own code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    printed, code = recorded()
    save(Text.from_ansi(printed), arguments.picture, "make demo", COLUMNS)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
