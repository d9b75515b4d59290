"""The library's messages, as a line for people elsewhere."""

from __future__ import annotations

LONGEST = 300


def refusal_text(message: str) -> str:
    """One line of printable characters, at most 300; what is the library's own state left out."""
    said = message.split("<state>", 1)[0].split("<non-verbose/>", 1)[0]
    line = " ".join("".join(c if c.isprintable() else " " for c in said).split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
