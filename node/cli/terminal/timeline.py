"""The timeline of a generation: where draft, wire and verify of each block lie in time.

One row a block, all rows on one axis:

    position  accepted    draft     wire   verify
         312       7/8  0.05 ms  0.40 ms  9.80 ms  |▒░███████              |
         320       8/8  0.05 ms  0.41 ms  9.71 ms  |      ▒░·███████       |

A draft that was made ahead lies under the verify forward of the row above. A row
`link` tells when what carries tensors changed:

        link      ring                              |          ^                |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kakeya_fleet.node.cli.terminal.quantities import seconds_text, share_text
from kakeya_fleet.node.cli.terminal.tables import Column, plain_table


class Block(Protocol):
    """What is drawn of one verified block; all times in seconds."""

    @property
    def first_index(self) -> int:
        """Position of the block's first token in the history."""
        ...

    @property
    def drafted_count(self) -> int:
        """Drafted tokens that were verified."""
        ...

    @property
    def accepted_count(self) -> int:
        """Drafted tokens that were accepted."""
        ...

    @property
    def draft_seconds(self) -> float:
        """The proposer's own time."""
        ...

    @property
    def wire_seconds(self) -> float:
        """Round trip of the draft less the proposer's time."""
        ...

    @property
    def wait_seconds(self) -> float:
        """Time that the verifier waited for the draft."""
        ...

    @property
    def verify_seconds(self) -> float:
        """The verify forward."""
        ...

    @property
    def drafted_ahead(self) -> bool:
        """Whether the draft was made while the last block was verified."""
        ...

    @property
    def start_seconds(self) -> float:
        """The block's start since the generation began."""
        ...


class Change(Protocol):
    """What is drawn of a change of what carries tensors."""

    @property
    def start_seconds(self) -> float:
        """When, since the generation began."""
        ...

    @property
    def transport(self) -> str:
        """What carries them from then on."""
        ...


@dataclass(frozen=True, slots=True)
class Brush:
    """The characters of the parts of a row."""

    draft: str
    wire: str
    verify: str


BLOCKS = Brush(draft="▒", wire="░", verify="█")
ASCII = Brush(draft="d", wire="~", verify="V")
CHANGED = "^"
# What the numbers and the bars' ends take of a line, with times of up to 8 characters.
NUMBERS_WIDTH = 52


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a row: `glyph` from `start`, for `seconds`."""

    glyph: str
    start: float
    seconds: float


def bar_width(columns: int) -> int:
    """Columns of the axis on a screen of so many: what the numbers leave, 16 to 48."""
    return max(16, min(48, columns - NUMBERS_WIDTH))


def draw_timeline(
    blocks: Sequence[Block],
    changes: Sequence[Change] = (),
    *,
    width: int = 48,
    row_count: int = 12,
    brush: Brush = BLOCKS,
) -> str:
    """Draws the last `row_count` blocks on an axis of `width` columns; "" without blocks.

    A part shorter than a column is drawn as one column. `changes` in the time of these
    blocks have a row each, before the first block that starts later.
    """
    if not blocks:
        return ""
    first = max(0, len(blocks) - row_count)
    spans = [
        _spans(blocks[index], blocks[index - 1] if index else None, brush)
        for index in range(first, len(blocks))
    ]
    origin = min(span.start for row in spans for span in row)
    end = max(span.start + span.seconds for row in spans for span in row)
    scale = width / max(end - origin, 1e-9)
    drawn = [
        (block.start_seconds, [*_numbers(block), f"|{_bar(row, origin, scale, width)}|"])
        for block, row in zip(blocks[first:], spans, strict=True)
    ]
    for change in changes:
        if origin <= change.start_seconds <= end:
            column = min(width - 1, int((change.start_seconds - origin) * scale))
            mark = f"|{' ' * column}{CHANGED}{' ' * (width - column - 1)}|"
            drawn.append((change.start_seconds, ["link", str(change.transport), "", "", "", mark]))
    rows = [row for _, row in sorted(drawn, key=lambda timed: timed[0])]
    columns = [
        Column("position", right=True),
        Column("accepted", right=True),
        Column("draft", right=True),
        Column("wire", right=True),
        Column("verify", right=True),
        Column(f"{brush.draft} draft {brush.wire} wire {brush.verify} verify"),
    ]
    table = plain_table(columns, rows)
    axis = f"one column is {seconds_text((end - origin) / width)}; {_shares(blocks)}"
    hidden = f"the last {len(blocks) - first} of {len(blocks)} blocks; " if first else ""
    return f"{table}\n{hidden}{axis}"


def _spans(block: Block, before: Block | None, brush: Brush) -> list[Span]:
    verify_start = block.start_seconds + block.wait_seconds
    verify = Span(brush.verify, verify_start, block.verify_seconds)
    if not block.drafted_count:
        return [verify]
    # A draft ahead was asked for when the forward of the block before began.
    asked = block.start_seconds
    if block.drafted_ahead and before is not None:
        asked = before.start_seconds + before.wait_seconds
    draft = Span(brush.draft, asked, block.draft_seconds)
    wire = Span(brush.wire, asked + block.draft_seconds, block.wire_seconds)
    return [draft, wire, verify]


def _numbers(block: Block) -> list[str]:
    drafted = block.drafted_count > 0
    return [
        str(block.first_index),
        f"{block.accepted_count}/{block.drafted_count}" if drafted else "alone",
        seconds_text(block.draft_seconds) if drafted else "-",
        seconds_text(block.wire_seconds) if drafted else "-",
        seconds_text(block.verify_seconds),
    ]


def _bar(spans: Sequence[Span], origin: float, scale: float, width: int) -> str:
    cells = [" "] * width
    cursor = 0
    for rest, span in zip(range(len(spans) - 1, -1, -1), spans, strict=True):
        if span.seconds <= 0:
            continue
        start = max(cursor, int((span.start - origin) * scale))
        start = min(start, width - 1 - rest)
        end = min(width - rest, start + max(1, round(span.seconds * scale)))
        cells[start:end] = span.glyph * (end - start)
        cursor = end
    return "".join(cells)


def _shares(blocks: Sequence[Block]) -> str:
    """What the verifier did with its time, over all blocks."""
    verify = sum(block.verify_seconds for block in blocks)
    wait = sum(block.wait_seconds for block in blocks)
    drafts = [block for block in blocks if block.drafted_count]
    ahead = sum(block.drafted_ahead for block in drafts)
    text = f"waiting for drafts {share_text(wait, wait + verify)}"
    return f"{text}, {ahead} of {len(drafts)} drafts made ahead" if drafts else text
