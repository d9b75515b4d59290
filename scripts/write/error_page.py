"""docs/troubleshooting.md and the remedies that the dashboard's page has of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from textwrap import wrap

from scripts.write.error_reasons import Chapter, Reason, Vocabulary

_WIDTH = 100
_INTRODUCTION = """\
# Troubleshooting

Every error that has a name, with its cause and its remedy. Programs read the name in
`ErrorInfo.reason` (gRPC), `error.reason` (the SDKs), `error.code` (HTTP) or `"reason"`
(`fleet ... --json`). Where the message tells the cause alone, the remedy comes with it:
`error.mend` in the SDKs. The [last chapter](#statuses-and-classes) has the statuses. Made from
[error_reason.proto](../proto/kakeya/v1/error_reason.proto) by `make stubs`.

First looks, whatever happened:

```
fleet status            # who is there, alive, serving what
fleet status --links    # what carries tensors between nodes, and why
fleet plan              # who would draft for whom, and why not the others
```
"""
_STATUSES = """\

## Statuses and classes

How calls and requests end with them, the classes of `kakeya.errors` and `@kakeya/runtime`, and the
seconds after which a retry may succeed where the error does not say.

| reason | gRPC | HTTP | class | retry |
|---|---|---|---|---|
"""


def page(vocabulary: Vocabulary) -> str:
    """docs/troubleshooting.md."""
    chapters = [line for chapter in vocabulary.chapters for line in _chapter(chapter)]
    rows = [_row(vocabulary, reason) for reason in vocabulary.reasons.values()]
    return _INTRODUCTION + "".join(chapters) + _STATUSES + "".join(filter(None, rows))


def _chapter(chapter: Chapter) -> Iterator[str]:
    yield f"\n## {chapter.title}\n"
    if chapter.introduction:
        yield f"\n{_wrapped(chapter.introduction)}\n"
    for reason in chapter.reasons:
        told = reason.terminal_remedy or reason.remedy
        remedy = f"{_sentence(told)} {reason.advice}".strip()
        yield f"\n### {reason.name}\n{_wrapped(f'{reason.cause} **Remedy:** {remedy}')}\n"


def _row(vocabulary: Vocabulary, reason: Reason) -> str:
    """A row of the table; empty for what never ends a call nor a request."""
    status, http_status = vocabulary.status(reason), vocabulary.http_status(reason)
    if not status and not http_status:
        return ""
    name = f"`{reason.class_name}`" if reason.has_class else ""
    retry = f"{reason.retry_after_seconds:g}" if reason.retry_after_seconds else ""
    link = f"[{reason.name}](#{reason.name.lower()})"
    return f"| {link} | {status} | {http_status or ''} | {name} | {retry} |\n"


def dashboard(vocabulary: Vocabulary) -> str:
    """dashboard/shared/remedies.ts."""
    lines = [
        "/**",
        " * What mends an error, in the words of the page, by its reason.",
        " * Made from proto/kakeya/v1/error_reason.proto by `make stubs`.",
        " */",
        "export const REMEDIES: Readonly<Record<string, string>> = {",
        *(
            _property(name, json.dumps(reason.page_remedy, ensure_ascii=False))
            for name, reason in sorted(vocabulary.reasons.items())
            if reason.page_remedy
        ),
        "};",
    ]
    return "\n".join(lines) + "\n"


def _property(name: str, value: str) -> str:
    line = f"  {name}: {value},"
    return line if len(line) <= _WIDTH else f"  {name}:\n    {value},"


def _sentence(words: str) -> str:
    """A few words as a sentence; empty words stay empty."""
    return f"{words[0].upper()}{words[1:]}." if words else ""


def _wrapped(text: str) -> str:
    return "\n".join(wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False))
