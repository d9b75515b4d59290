"""The commands that every rank of a group runs, in the same order."""

from __future__ import annotations

from enum import StrEnum


class Command(StrEnum):
    """The key `do` of a message. Those with a `verifier` name it by its number.

    INFO says what the rank has loaded. ALLOCATE and FORK say `as` which number the
    new cache is known. Every answer has a `checksum` of the rank's state; rank
    0's has the `state` itself, and an `error` or results.
    """

    INFO = "info"
    SHALLOW = "shallow"
    USE_ROW_COUNTS = "use_row_counts"
    BYTES_NEEDED = "bytes_needed"
    ALLOCATE = "allocate"
    FORK = "fork"
    FORK_BYTES = "fork_bytes"
    FILL = "fill"
    GROW = "grow"
    FORWARD = "forward"


class Note(StrEnum):
    """What goes along with the next command, in the list `before`: it needs no answer.

    `["release", cache]`, `["truncate", cache, length]`, and
    `["budget", verifier, bytes]`, without bytes for no limit.
    """

    RELEASE = "release"
    TRUNCATE = "truncate"
    BUDGET = "budget"
