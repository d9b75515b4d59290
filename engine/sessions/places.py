"""How many sessions there may be, whoever counts them."""

from __future__ import annotations

from typing import Protocol


class Places(Protocol):
    """Places of sessions. Any thread may call; called under the registry's lock."""

    def would_refuse(self, owner: str, after: str | None = None) -> bool:
        """Whether `take` would raise now, or once `after` had given one back."""
        ...

    def take(self, owner: str) -> None:
        """One more is the owner's until `give_back`. Raises when there is none for it."""
        ...

    def give_back(self, owner: str) -> None:
        """One of the owner's is free again."""
        ...


class Unbounded:
    """As many as their memory allows."""

    def would_refuse(self, owner: str, after: str | None = None) -> bool:  # noqa: ARG002 - of any
        """Never."""
        return False

    def take(self, owner: str) -> None:
        """Always."""

    def give_back(self, owner: str) -> None:
        """Counts nothing."""
