"""Secret tags of deposited keys and values: what an archive gives back is what it was given.

A tag is a keyed BLAKE2b (RFC 7693) of one layer's keys and values of one position, or of one
packed tile, of layer and position besides. The verifier's end of a connection has the key,
which never leaves it; the archive keeps the tags beside the numbers. So the verifier keeps
nothing that grows with the history, and who has not the key gives back other numbers, or those
of another place, unseen with probability 2^-64 a position.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import EvictedKeysValues, Raw

if TYPE_CHECKING:
    from numpy.typing import NDArray

TAG_BYTES = 8
KEY_BYTES = 32
Tags: TypeAlias = "NDArray[np.uint64]"
"""[layers, n], the layers in the order of deposits: group by group. n positions, or tiles."""

_TAG = "<u8"
_PLACE = struct.Struct("<QQ")
"""Layer and position, BLAKE2b's salt."""


class PositionTagger:
    """Makes and checks the tags of one session; a fork's archive keeps those of its origin."""

    def __init__(self, key: bytes | None = None) -> None:
        """Takes a key of its own unless one is given."""
        self._key = secrets.token_bytes(KEY_BYTES) if key is None else key

    def tags(self, shape: EvictedShape, first: int, evicted: EvictedKeysValues) -> Tags:
        """Those of positions `first` onwards."""
        rows: list[Tags] = []
        for group, array in zip(shape.groups, evicted.groups, strict=True):
            by_position = cast(Raw, np.ascontiguousarray(array.transpose(0, 3, 1, 2, 4)))
            rows += [
                self._layer_tags(layer, first, shape.tile, cast(Raw, own))
                for layer, own in zip(group.layers, by_position, strict=True)
            ]
        return np.stack(rows)

    def fit(self, shape: EvictedShape, first: int, evicted: EvictedKeysValues, tags: Tags) -> bool:
        """Whether `tags` are those of positions `first` onwards."""
        return bool(np.array_equal(self.tags(shape, first, evicted), tags))

    def _layer_tags(self, layer: int, first: int, step: int, numbers: Raw) -> Tags:
        """Of numbers [n, ...], contiguous; the next are of `step` positions further on."""
        rows = numbers.reshape(len(numbers), -1).view(np.uint8)
        key, pack, blake2b = self._key, _PLACE.pack, hashlib.blake2b
        found = b"".join(
            blake2b(
                row.data, digest_size=TAG_BYTES, key=key, salt=pack(layer, first + index * step)
            ).digest()
            for index, row in enumerate(rows)
        )
        return np.frombuffer(found, _TAG)


class KeptTags:
    """The tags that an archive keeps, of the positions from `first` on, one each `step`.

    Besides its budget, of which they are at most 3 / 2 of 8 / (2 kv_heads head_dim b), with
    keys and values of b bytes: 1.2 % with 2 heads of 64 values in float32.
    """

    def __init__(self, layers: tuple[int, ...], first: int, step: int = 1) -> None:
        """`layers` are those of deposits, in their order."""
        self._rows = {layer: row for row, layer in enumerate(layers)}
        self._first = first
        self._step = step
        self._count = 0
        self._tags: Tags = np.empty((len(layers), 0), _TAG)

    @property
    def nbytes(self) -> int:
        """Bytes that they take, with the room for more."""
        return self._tags.nbytes

    def add(self, tags: Tags) -> None:
        """The next ones."""
        count = tags.shape[1]
        more = self._more_room(count)
        if more:
            room: Tags = np.empty((self._tags.shape[0], self._tags.shape[1] + more), _TAG)
            room[:, : self._count] = self._tags[:, : self._count]
            self._tags = room
        self._tags[:, self._count : self._count + count] = tags
        self._count += count

    def of(self, layer: int, first: int, count: int) -> Tags:
        """A copy of those of one layer's `count` positions `first` onwards, which are there."""
        start = (first - self._first) // self._step
        return self._tags[self._rows[layer], start : start + count // self._step].copy()

    def fork(self, length: int) -> KeptTags:
        """A copy of those of the positions below `length`."""
        forked = KeptTags(tuple(self._rows), self._first, self._step)
        kept = max(0, min(self._count, (length - self._first) // self._step))
        if kept:
            forked.add(self._tags[:, :kept])
        return forked

    def _more_room(self, count: int) -> int:
        """Positions by which the room grows for `count` more: half as much again, so that a
        history of n positions is copied less than three times."""
        room: int = self._tags.shape[1]
        if self._count + count <= room:
            return 0
        return max(self._count + count - room, room // 2)
