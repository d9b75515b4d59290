"""Texts without what steers a terminal.

Labels, names and answers come from elsewhere and may carry control sequences (ECMA-48) that
move the cursor, retitle the window or type for the person. Without its control characters a
sequence is text like other text.
"""

from __future__ import annotations

# C0 but line breaks and tabs, DEL, C1.
_CONTROLS = dict.fromkeys((*set(range(0x20)) - {0x09, 0x0A}, *range(0x7F, 0xA0)))
# Marks that turn the direction of writing (UAX 9): what follows would read as something else.
_DIRECTIONS = dict.fromkeys(
    (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
)
_BREAKS = dict.fromkeys((0x09, 0x0A, 0x2028, 0x2029), " ")
_NAMES = {**_CONTROLS, **_DIRECTIONS, **_BREAKS}


def printable(text: str) -> str:
    """The text without control characters; line breaks and tabs stay."""
    return text if text.isprintable() else text.translate(_CONTROLS)


def on_one_line(text: str) -> str:
    """A name as a cell of a table may have it: nothing in it begins a row or turns it around."""
    return text if text.isprintable() else text.translate(_NAMES)
