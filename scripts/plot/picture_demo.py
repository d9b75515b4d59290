"""Runs the demonstration on a pseudo-terminal and draws what it printed.

python -m scripts.plot.picture_demo benchmarks/demo.svg
"""

from __future__ import annotations

import argparse
import io
import os
import pty
import re
import sys
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

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


def without_remote_fonts(template: str) -> str:
    """The template without its `@font-face` rules: the picture loads nothing."""
    return re.sub(r"@font-face \{\{.*?\}\}\s", "", template, flags=re.DOTALL)


def draw(printed: str, target: Path) -> None:
    """Writes the terminal's picture."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(printed))
    target.write_text(
        console.export_svg(
            title="make demo",
            code_format=without_remote_fonts(CONSOLE_SVG_FORMAT),
            unique_id="demo",
        )
    )


def main() -> None:
    """Records and draws; exits with the demonstration's own code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    printed, code = recorded()
    draw(printed, arguments.picture)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
