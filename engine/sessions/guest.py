"""Memory in the budget of sessions that is none of theirs, and gives way to any of them."""

from __future__ import annotations

from typing import Protocol


class Guest(Protocol):
    """What takes free bytes for a while. No session rests, ends or is refused for its sake."""

    @property
    def nbytes(self) -> int:
        """Bytes of the verifier's pool that it has now. Any thread may ask."""
        ...

    def leave(self) -> None:
        """Gives them back at once, and takes none again. In the verifier's thread."""
        ...
