"""What a watcher that has just come was not told yet."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

Message = TypeVar("Message")


class Backlog(Generic[Message]):
    """The things that a watcher is still to be told of, each once, by its key.

    The snapshot comes first, in parts that are made when they are sent; what changes
    meanwhile waits until the last of them, as it is then. So a slow reader of a large
    snapshot holds up to one key for each thing that is there, loses nothing, and hears of
    each thing in order: what its part of the snapshot will say is not said before it.
    Belongs to one event loop.
    """

    def __init__(
        self, keys: Iterable[str], subject_of: Callable[[Message], tuple[str, bool]]
    ) -> None:
        """`keys` in the snapshot's order; `subject_of` a message: its key, and whether it ends."""
        self._subject_of = subject_of
        self._untold = OrderedDict.fromkeys(keys)
        self._told: set[str] = set()
        self._later: OrderedDict[str, Message | None] = OrderedDict()

    @property
    def has_more(self) -> bool:
        """Whether some of the snapshot is still to be told."""
        return bool(self._untold)

    def note(self, message: Message) -> None:
        """Something changed, or ended."""
        key, ends = self._subject_of(message)
        if key in self._untold:
            if ends:
                del self._untold[key]
        elif not ends:
            self._later[key] = None
        elif key in self._told:
            self._later[key] = message
        else:
            # The watcher never heard of it. Those that come and go would add up.
            self._later.pop(key, None)

    def next_of_snapshot(self) -> str:
        """The next key of the snapshot; there must be one."""
        key, _ = self._untold.popitem(last=False)
        return key

    def next_later(self) -> tuple[str, Message | None] | None:
        """The next key that changed since it was told, or with the message of its end.

        None once the watcher knows all.
        """
        if not self._later:
            return None
        key, end = self._later.popitem(last=False)
        if end is not None:
            self._told.discard(key)
        return key, end

    def was_told(self, key: str) -> None:
        """The watcher heard of it: it is to hear of its end."""
        self._told.add(key)

    def clear(self) -> None:
        """Forgets everything: the watcher is to be told of nothing any more."""
        self._untold.clear()
        self._told.clear()
        self._later.clear()
