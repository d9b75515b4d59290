"""The tokens of a session: an append-only list, and views of its beginning."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, overload

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class History(Sequence[int]):
    """Token ids, oldest first. Only grows; one thread writes, any may read.

    Four bytes a token: a list of numbers takes 36.
    """

    __slots__ = ("_marked_count", "_seen", "_token_ids")

    def __init__(self, token_ids: Iterable[int] = ()) -> None:
        self._token_ids = array("I", token_ids)
        self._seen = np.zeros(0, np.bool_)
        self._marked_count = 0

    def __len__(self) -> int:
        return len(self._token_ids)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        found = self._token_ids[index]
        return found if isinstance(found, int) else found.tolist()

    def extend(self, token_ids: Iterable[int]) -> None:
        """Appends tokens."""
        self._token_ids.extend(token_ids)

    def seen(self, vocabulary_size: int) -> NDArray[np.bool_]:
        """Which ids occur, [vocabulary_size], read only and good until the next append.

        All ids are below `vocabulary_size`. Takes time for what was appended
        since the last call only, and one byte an id of the vocabulary, both from
        the first call on. Belongs to the thread that writes.
        """
        if self._seen.size != vocabulary_size:
            self._seen = np.zeros(vocabulary_size, np.bool_)
            self._marked_count = 0
        if self._marked_count < len(self._token_ids):
            # A copy: an array that lends its memory cannot grow.
            self._seen[np.asarray(self._token_ids[self._marked_count :])] = True
            self._marked_count = len(self._token_ids)
        view = self._seen.view()
        view.flags.writeable = False
        return view

    def until(self, length: int) -> Prefix:
        """The first `length` tokens, also after more were appended; no copy."""
        return Prefix(self._token_ids, length)


class Prefix(Sequence[int]):
    """The first tokens of a history, of a fixed length, without a copy."""

    __slots__ = ("_length", "_token_ids")

    def __init__(self, token_ids: array[int], length: int) -> None:
        if not 0 <= length <= len(token_ids):
            raise ValueError(f"no prefix of {length} tokens in {len(token_ids)}")
        self._token_ids = token_ids
        self._length = length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, slice):
            start, stop, stride = index.indices(self._length)
            if stride < 0:
                return [self._token_ids[position] for position in range(start, stop, stride)]
            return self._token_ids[start:stop:stride].tolist()
        if not -self._length <= index < self._length:
            raise IndexError(f"index {index} in a prefix of {self._length} tokens")
        return self._token_ids[index if index >= 0 else index + self._length]
