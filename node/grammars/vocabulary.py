"""A model's tokenizer as llguidance knows it: the bytes that each id stands for, as a trie."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kakeya_fleet.engine.errors import ModelUnusable
from kakeya_fleet.engine.models.digests import TOKENIZER_FILES
from kakeya_fleet.engine.models.model_folder import resolve_tokenizer
from kakeya_fleet.node.grammars.refusal_text import refusal_text
from kakeya_fleet.node.rpc.refusals import TokenizerNotFound

if TYPE_CHECKING:
    from llguidance import LLTokenizer

TOKENIZER_JSON = TOKENIZER_FILES[0]


@dataclass(frozen=True, slots=True)
class ModelTokenizer:
    """Where a served model's tokenizer is, and which one it must be.

    `source` is the word by which `engine.models.model_folder` finds its folder, `digest` the
    SHA-256 of its `tokenizer.json`, `vocabulary_size` that of the model's logits.
    """

    model_id: str
    source: str
    digest: str
    vocabulary_size: int

    def missing(self, detail: str) -> TokenizerNotFound:
        """The refusal where it cannot be had."""
        return TokenizerNotFound(
            f"no grammar can hold answers of {self.model_id!r}: {detail}; serve the model with its"
            f" {TOKENIZER_JSON}",
            model_id=self.model_id[:64],
        )


def read_vocabulary(tokenizer: ModelTokenizer) -> LLTokenizer:
    """Reads the file and builds the trie, in up to a second. Raises `TokenizerNotFound`."""
    # Half of an agent's life needs none: imported where the first one does.
    from llguidance import LLTokenizer  # noqa: PLC0415

    try:
        path = resolve_tokenizer(tokenizer.source).path / TOKENIZER_JSON
        raw = path.read_bytes()
    except ModelUnusable as error:
        raise tokenizer.missing(f"its folder is not to be had here: {error}") from error
    except OSError as error:
        raise tokenizer.missing(f"its tokenizer cannot be read: {error}") from error
    if hashlib.sha256(raw).hexdigest() != tokenizer.digest:
        raise tokenizer.missing(f"{path} changed since the model was loaded; restart the node")
    try:
        return LLTokenizer(raw.decode())
    except ValueError as error:
        raise tokenizer.missing(f"{path} is unknown: {refusal_text(str(error))}") from error
