"""Reading the fields of a request's body: each has a kind and a range, and is named when wrong."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from typing import cast

from kakeya_fleet.node.http.refusal import HttpRefusal, bad_field, unsupported

_LONGEST_NAME = 64
"""Beyond every field's; what is compared or shown of a name that is none."""


class Fields:
    """The fields of a JSON object. null stands for a field that is not there, as with OpenAI."""

    def __init__(self, body: Mapping[str, object], inside: str = "") -> None:
        """`inside` names the object in messages, empty for the body itself."""
        self._values = {key: value for key, value in body.items() if value is not None}
        self._inside = f"{inside}." if inside else ""

    @classmethod
    def of(cls, value: object, name: str) -> Fields:
        """The fields of the object called `name`."""
        if not isinstance(value, Mapping):
            raise bad_field(name, f"{name} is a JSON object, not {_shown(value)}")
        return cls(cast(Mapping[str, object], value), name)

    def named(self, key: str) -> str:
        """The field's whole name."""
        return self._inside + key

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def get(self, key: str) -> object:
        """The value as it came; None when it is not there."""
        return self._values.get(key)

    def present(self, keys: Collection[str]) -> tuple[str, ...]:
        """Those of `keys` that are there, by their whole names, in the order of the body."""
        return tuple(self.named(key) for key in self._values if key in keys)

    def check_known(self, known: Collection[str]) -> None:
        """Refuses a field that is not known, so that a mistyped one is not ignored."""
        for key in self._values:
            if key not in known:
                near = difflib.get_close_matches(key[:_LONGEST_NAME], known, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                name = self.named(key)[:_LONGEST_NAME]
                raise HttpRefusal(
                    "UNKNOWN_FIELD", f"{name!r} is not a field here{hint}", parameter=name
                )

    def refuse(self, key: str, allowed: Collection[object], mend: str) -> None:
        """Refuses a field that would change the answer, unless it has a value that does not."""
        if key in self._values and self._values[key] not in allowed:
            name = self.named(key)
            raise unsupported(
                name, f"{name} = {_shown(self._values[key])} is not supported; {mend}"
            )

    def number(self, key: str, low: float, high: float, default: float) -> float:
        """A finite number from `low` to `high`."""
        value = self._values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, f"a number from {low:g} to {high:g}")
        if not (math.isfinite(value) and low <= value <= high):
            raise self._wrong(key, f"a number from {low:g} to {high:g}")
        return float(value)

    def whole(self, key: str, low: int, high: int) -> int | None:
        """A whole number from `low` to `high`; None when it is not there."""
        value = self._values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self._wrong(key, f"a whole number from {low} to {high}")
        return value

    def flag(self, key: str) -> bool:
        """True or false; false when it is not there."""
        value = self._values.get(key, False)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def text(self, key: str, default: str = "") -> str:
        """A string."""
        value = self._values.get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a string")
        return value

    def texts(self, key: str, most: int) -> tuple[str, ...]:
        """A string that is not empty, or a list of at most `most` of them."""
        value = self._values.get(key, [])
        items: Sequence[object] = [value] if isinstance(value, str) else as_list(value)
        fits = isinstance(value, str | list) and len(items) <= most
        if not fits or not all(isinstance(item, str) and item for item in items):
            raise self._wrong(key, f"a string that is not empty, or a list of at most {most}")
        return tuple(cast(Sequence[str], items))

    def _wrong(self, key: str, expected: str) -> HttpRefusal:
        name = self.named(key)
        return bad_field(name, f"{name} is {expected}, not {_shown(self._values[key])}")


def as_list(value: object) -> list[object]:
    """`value` if it is a list; else an empty one."""
    return value if isinstance(value, list) else []


def _shown(value: object) -> str:
    """A value in a message, cut short."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
