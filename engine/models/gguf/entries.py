"""The entries of a GGUF file's metadata, each of the kind that it must be."""

from __future__ import annotations

import math
import struct

from kakeya_fleet.engine.errors import GgufInvalid
from kakeya_fleet.engine.models.gguf.header import GgufHeader

MOST = 1 << 31
"""Sizes and counts of models are less."""
MOST_FLOATS = 1 << 14
"""Numbers of a tensor that belongs to the config."""


class Entries:
    """What a header says. All methods raise `GgufInvalid` naming the entry.

    A key that begins with a dot is one of the file's architecture.
    """

    def __init__(self, header: GgufHeader) -> None:
        self.header = header
        self.architecture = self.text("general.architecture")

    def whole(
        self, key: str, default: int | None = None, *, least: int = 1, most: int = MOST
    ) -> int:
        """A whole number from `least` to `most`; `default` where there is none, if given."""
        found = self.header.metadata.get(self._full(key), default)
        if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
            raise self._wrong(key, f"a whole number from {least} to {most}")
        return found

    def wholes(self, key: str, count: int) -> tuple[int, ...]:
        """`count` whole numbers above 0; one that stands for all is written alone."""
        found = self.header.metadata.get(self._full(key))
        if not isinstance(found, list):
            return (self.whole(key),) * count
        numbers = [each for each in found if type(each) is int and 0 < each <= MOST]
        if len(numbers) != len(found) or len(found) != count:
            raise self._wrong(key, f"{count} whole numbers above 0")
        return tuple(numbers)

    def flags(self, key: str, count: int) -> tuple[bool, ...] | None:
        """`count` yes or no; None where there are none."""
        found = self.header.metadata.get(self._full(key))
        if found is None:
            return None
        if not isinstance(found, list) or len(found) != count:
            raise self._wrong(key, f"{count} flags")
        return tuple(bool(each) for each in found)

    def number(self, key: str, default: float | None = None) -> float:
        """A number above 0; `default` where there is none, if given."""
        found = self.header.metadata.get(self._full(key), default)
        if (
            isinstance(found, bool)
            or not isinstance(found, int | float)
            or not math.isfinite(found)
            or found <= 0
        ):
            raise self._wrong(key, "a number above 0")
        return float(found)

    def text(self, key: str, default: str | None = None) -> str:
        """A string; `default` where there is none, if given."""
        found = self.header.metadata.get(self._full(key), default)
        if not isinstance(found, str):
            raise self._wrong(key, "a text")
        return found

    def texts(self, key: str) -> list[str]:
        """A list of strings; empty where there is none."""
        found = self.header.metadata.get(self._full(key), [])
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise self._wrong(key, "a list of texts")
        return [str(each) for each in found]

    def numbers(self, key: str) -> list[float]:
        """A list of numbers; empty where there is none."""
        found = self.header.metadata.get(self._full(key), [])
        if not isinstance(found, list) or not all(isinstance(each, int | float) for each in found):
            raise self._wrong(key, "a list of numbers")
        return [float(each) for each in found]

    def flag(self, key: str) -> bool | None:
        """Yes or no; None where it is not said."""
        found = self.header.metadata.get(self._full(key))
        if found is not None and not isinstance(found, bool):
            raise self._wrong(key, "true or false")
        return found

    def __contains__(self, key: str) -> bool:
        return self._full(key) in self.header.metadata

    def floats(self, name: str) -> list[float] | None:
        """The numbers of the float32 tensor `name`, one that belongs to the config; None without.

        Raises `GgufInvalid` also for one of another type or of more than 16,384 numbers.
        """
        tensor = self.header.tensors.get(name)
        if tensor is None:
            return None
        count = math.prod(tensor.shape)
        if tensor.kind.name != "F32" or count > MOST_FLOATS:
            raise self._wrong(name, f"a tensor of at most {MOST_FLOATS} numbers in F32")
        with self.header.path.open("rb") as file:
            file.seek(tensor.start)
            return list(struct.unpack(f"<{count}f", file.read(tensor.byte_count)))

    def _full(self, key: str) -> str:
        return f"{self.architecture}{key}" if key.startswith(".") else key

    def _wrong(self, key: str, expected: str) -> GgufInvalid:
        path = self.header.path
        return GgufInvalid(
            f"{path} has no {self._full(key)} that is {expected}; convert the model anew",
            path=str(path),
            entry=self._full(key),
        )
