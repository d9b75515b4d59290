"""Comments of the contract in a value's words, and as lines."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator

from scripts.write.values.model import Contract

WIDTH = 100
_NAME = re.compile(r"\b[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*\b")


def spoken(text: str, contract: Contract, field_name: Callable[[str], str]) -> str:
    """The comment with the SDK's names: of fields in backticks, of enums' values in quotes."""

    def said(found: re.Match[str]) -> str:
        name = found[0]
        if name in contract.members:
            return f'"{contract.members[name]}"'
        if name in contract.fields:
            return f"`{field_name(name)}`"
        return contract.renamed.get(name, name)

    return _NAME.sub(said, text)


def wrapped(text: str, indent: str) -> list[str]:
    """The text in lines that begin with `indent`, at most `WIDTH` long."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def paragraphs(text: str) -> Iterator[str]:
    """The first sentence, then the others, if there are any."""
    first, end, rest = text.partition(". ")
    yield first + (end.strip() or "")
    if rest:
        yield rest
