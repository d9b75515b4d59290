"""The clients' trees of error classes, in Python and in TypeScript."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from scripts.write.error_reasons import ROOT_REASON, Reason, Vocabulary

_MADE = "made from proto/kakeya/v1/error_reason.proto by `make stubs`"
_WIDTH = 100


def python(vocabulary: Vocabulary) -> str:
    """kakeya/errors.py."""
    classes = [reason for _, reason in vocabulary.tree()]
    names = sorted(reason.class_name for reason in classes)
    lines = [
        f'"""Errors of the client, {_MADE}.',
        "",
        *_drawn(vocabulary),
        "",
        "What each of them has is told in `kakeya.error_base`.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from kakeya.error_base import KakeyaError",
        "",
        "__all__ = [",
        *(f'    "{name}",' for name in names),
        "]",
    ]
    for reason in classes:
        if reason.name != ROOT_REASON:
            lines += ["", "", *_python_class(vocabulary, reason)]
    return "\n".join(lines) + "\n"


def _python_class(vocabulary: Vocabulary, reason: Reason) -> Iterator[str]:
    yield f"class {reason.class_name}({vocabulary.reasons[reason.family].class_name}):"
    if reason.description:
        yield f'    """{reason.summary}'
        yield ""
        yield from (f"    {line}" for line in _wrapped(reason.description, 4))
        yield '    """'
    else:
        yield f'    """{reason.summary}"""'
    yield ""
    yield f'    default_reason = "{reason.name}"'
    if _has_own_code(vocabulary, reason):
        yield f'    default_code = "{reason.status}"'
    # The order of a map of proto is no order.
    for key, meaning in sorted(reason.attributes.items()):
        yield ""
        yield "    @property"
        yield f"    def {key}(self) -> str:"
        yield f'        """{meaning}"""'
        yield f'        return self.metadata.get("{key}", "")'


def typescript(vocabulary: Vocabulary) -> str:
    """src/errors.ts."""
    lines = [
        "/**",
        f" * Errors of the client, {_MADE}.",
        " *",
        *(f" * {line}" for line in _drawn(vocabulary)),
        " *",
        " * What each of them has is told in error-base.ts.",
        " */",
        "",
        'import { KakeyaError } from "./error-base.js";',
        "",
        'export { type ErrorFields, KakeyaError } from "./error-base.js";',
    ]
    for _, reason in vocabulary.tree():
        if reason.name != ROOT_REASON:
            lines += ["", *_typescript_class(vocabulary, reason)]
    return "\n".join(lines) + "\n"


def _typescript_class(vocabulary: Vocabulary, reason: Reason) -> Iterator[str]:
    if reason.description:
        yield from ("/**", f" * {reason.summary}", " *")
        yield from (f" * {line}" for line in _wrapped(reason.description, 3))
        yield " */"
    else:
        yield f"/** {reason.summary} */"
    parent = vocabulary.reasons[reason.family].class_name
    yield f"export class {reason.class_name} extends {parent} {{"
    yield f'  static override readonly defaultReason: string = "{reason.name}";'
    if _has_own_code(vocabulary, reason):
        yield f'  static override readonly defaultCode: string = "{reason.status}";'
    # The order of a map of proto is no order.
    for key, meaning in sorted(reason.attributes.items()):
        yield ""
        yield f"  /** {meaning} */"
        first, *others = key.split("_")
        yield f"  get {first}{''.join(map(str.title, others))}(): string {{"
        yield f'    return this.metadata["{key}"] ?? "";'
        yield "  }"
    yield "}"


def _drawn(vocabulary: Vocabulary, name: str = ROOT_REASON, before: str = "") -> Iterator[str]:
    """The tree, a class a line."""
    if name == ROOT_REASON:
        yield vocabulary.reasons[name].class_name
    children = vocabulary.children(name)
    for child in children:
        branch, below = ("└── ", "    ") if child is children[-1] else ("├── ", "│   ")
        yield f"{before}{branch}{child.class_name}"
        yield from _drawn(vocabulary, child.name, before + below)


def _has_own_code(vocabulary: Vocabulary, reason: Reason) -> bool:
    parent = vocabulary.reasons[reason.family]
    return vocabulary.status(reason) != vocabulary.status(parent)


def _wrapped(text: str, indent: int) -> list[str]:
    return wrap(text, _WIDTH - indent, break_long_words=False, break_on_hyphens=False)
