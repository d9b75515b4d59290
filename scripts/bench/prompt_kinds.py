"""Prompts by kind, none of which the models were trained on.

`code` are stretches of the standard library's held-out files, whose style the
models know from the other files; `package` stretches of installed packages, which
they do not; `prose` the docstrings of the held-out files; `random` ids drawn
evenly from the vocabulary.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence

from transformers import PreTrainedTokenizerBase

import scripts.train.python_corpus as python_corpus

CODE, PACKAGE, PROSE, RANDOM = "code", "package", "prose", "random"
KINDS = (CODE, PACKAGE, PROSE, RANDOM)
LEAST_PROSE_WORDS = 40


def prompts(
    kind: str,
    tokenizer: PreTrainedTokenizerBase,
    files: Sequence[python_corpus.SourceFile],
    *,
    count: int,
    tokens: int,
    seed: int,
) -> list[list[int]]:
    """`count` prompts of `tokens` ids each, out of `files`: one of a file at most.

    Raises `ValueError` when the files have too little text of the kind.
    """
    rng = random.Random(f"{kind} {seed}")
    if kind == RANDOM:
        return [[rng.randrange(len(tokenizer)) for _ in range(tokens)] for _ in range(count)]
    texts = list(_prose(files)) if kind == PROSE else [file.text for file in files]
    rng.shuffle(texts)
    found = []
    for text in texts:
        start = 0 if kind == PROSE else rng.choice(_line_starts(text))
        ids = tokenizer.encode(text[start:], add_special_tokens=False, verbose=False)
        if len(ids) >= tokens:
            found.append(ids[:tokens])
        if len(found) == count:
            return found
    raise ValueError(f"{len(found)} of {count} {kind} prompts of {tokens} tokens")


def _prose(files: Sequence[python_corpus.SourceFile]) -> Iterator[str]:
    """Docstrings of some length, as people read them."""
    for file in files:
        try:
            tree = ast.parse(file.text)
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node)
                if text and len(text.split()) >= LEAST_PROSE_WORDS:
                    yield text


def _line_starts(text: str) -> list[int]:
    """Where lines begin, in the first half, so that there is something to continue."""
    half = len(text) // 2
    return [0, *(index + 1 for index, letter in enumerate(text[:half]) if letter == "\n")]
