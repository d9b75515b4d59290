"""Values of a request, checked before anything is sent: an error names its field and its range."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Mapping, Sequence
from numbers import Real
from operator import index

from kakeya.errors import BadRequest, TokenOutOfVocabulary

LARGEST_COUNT = 2**32 - 1
"""What a field of 32 bits holds, for counts that have no smaller limit."""
LARGEST_SEED = 2**64 - 1
MAX_GENERATED_TOKENS = 1 << 20
MAX_NAME_CHARACTERS = 128
MAX_STOP_TOKENS = 1024
MAX_BIASES = 1024
MAX_BIAS = 10_000.0
MAX_TEMPERATURE = 100.0
MAX_PENALTY = 64.0
MAX_COUNT_PENALTY = 2.0
MAX_ALTERNATIVES = 20
MAX_DRAFTED_TOKENS = 31
MAX_PAGE_SIZE = 1000
MAX_WATCHED_BLOCKS = 256
MAX_HISTORY_SECONDS = 900.0
MAX_DRAIN_SECONDS = 3600.0
MAX_UNLOAD_AFTER_SECONDS = 31_536_000.0
LONGEST_SECONDS = 1e9
"""Longer than any deadline means."""
_TRACEPARENT = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def whole(field: str, value: int, low: int, high: int = LARGEST_COUNT) -> int:
    """A whole number from `low` to `high`. Raises BadRequest."""
    try:
        number = index(value)
    except TypeError:
        number = low - 1
    if isinstance(value, bool) or not low <= number <= high:
        raise _wrong(field, f"a whole number from {low:,} to {high:,}", value)
    return number


def optional_whole(
    field: str, value: int | None, low: int, high: int = LARGEST_COUNT
) -> int | None:
    """As `whole`; None leaves it to the node."""
    return None if value is None else whole(field, value, low, high)


def number(field: str, value: float, low: float, high: float) -> float:
    """A finite number from `low` to `high`. Raises BadRequest."""
    # Real knows whole numbers and those of numpy too.
    if isinstance(value, bool) or not isinstance(value, Real) or not low <= value <= high:
        raise _wrong(field, f"a number from {low:,g} to {high:,g}", value)
    return float(value)


def name(field: str, value: str) -> str:
    """A text of at most MAX_NAME_CHARACTERS. Raises BadRequest."""
    if not isinstance(value, str) or len(value) > MAX_NAME_CHARACTERS:
        raise _wrong(field, f"a text of at most {MAX_NAME_CHARACTERS} characters", value)
    return value


def token_ids(field: str, given: Sequence[int]) -> array[int]:
    """The ids, 4 bytes each. Raises BadRequest for what is no id, TokenOutOfVocabulary."""
    if isinstance(given, str | bytes | bytearray):
        raise BadRequest(
            f"{field} is a list of token ids, not text: encode it first, "
            "client.text(model).encode(text)",
            metadata={"field": field},
        )
    try:
        return array("I", given)
    except OverflowError:
        place, wrong = next((place, each) for place, each in enumerate(given) if not _fits(each))
        at = f"{field}[{place}]"
        raise TokenOutOfVocabulary(
            f"{at} is not in the vocabulary: {wrong}", metadata={"field": at}
        ) from None
    except TypeError:
        raise _no_ids(field, given) from None


def stop_token_ids(given: Sequence[int]) -> list[int]:
    """Ids that end a generation. Raises BadRequest."""
    if isinstance(given, str | bytes) or len(given) > MAX_STOP_TOKENS:
        raise _wrong("stop_token_ids", f"a list of at most {MAX_STOP_TOKENS:,} ids", given)
    return [whole(f"stop_token_ids[{place}]", each, 0) for place, each in enumerate(given)]


def repetition_penalty(value: float) -> float:
    """1/64 to 64, or 0 for 1. Raises BadRequest."""
    lowest = 0.0 if value == 0 else 1 / MAX_PENALTY
    return number("repetition_penalty", value, lowest, MAX_PENALTY)


def count_penalty(field: str, value: float) -> float:
    """-2 to 2. Raises BadRequest."""
    return number(field, value, -MAX_COUNT_PENALTY, MAX_COUNT_PENALTY)


def logit_bias(given: Mapping[int, float] | None) -> dict[int, float]:
    """By id: -MAX_BIAS to MAX_BIAS, or minus infinity. Raises BadRequest."""
    biases: dict[int, float] = {}
    for key, value in (given or {}).items():
        token_id = whole("logit_bias", key, 0)
        field = f"logit_bias[{token_id}]"
        banned = value == -math.inf
        biases[token_id] = value if banned else number(field, value, -MAX_BIAS, MAX_BIAS)
    if len(biases) > MAX_BIASES:
        raise _wrong("logit_bias", f"a mapping of at most {MAX_BIASES:,} ids", len(biases))
    return biases


def traceparent(given: str) -> str:
    """A header of W3C Trace Context, or empty. Raises BadRequest."""
    if given and not _TRACEPARENT.fullmatch(given):
        raise _wrong("traceparent", "00-TRACE-SPAN-FLAGS, in hexadecimal digits", given)
    return given


def _fits(value: int) -> bool:
    return 0 <= index(value) <= LARGEST_COUNT


def _no_ids(field: str, given: object) -> BadRequest:
    for place, each in enumerate(given if isinstance(given, Sequence) else ()):
        try:
            index(each)
        except TypeError:
            return _wrong(f"{field}[{place}]", "a token id, a whole number", each)
    return _wrong(field, "a list of token ids", given)


def _wrong(field: str, expected: str, value: object) -> BadRequest:
    shown = repr(value)
    if len(shown) > 60:
        shown = f"{shown[:57]}..."
    return BadRequest(f"{field} is {expected}, not {shown}", metadata={"field": field})
