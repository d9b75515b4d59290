"""Text to token ids and back, with the verifier's own tokenizer.

Uses the tokenizers library alone: transformers takes two seconds to import
for the same ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.digests import tokenizer_digest
from engine.errors import ModelNotFound
from engine.model_folder import ModelFolder, resolve_tokenizer
from node.cli.failure import CommandFailed

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class TextTokenizer:
    """A tokenizer; `digest` is what cards call it, `stop_token_ids` end an answer."""

    tokenizer: Tokenizer
    digest: str
    stop_token_ids: tuple[int, ...]

    def encode(self, text: str) -> list[int]:
        """Ids of the text, with the special tokens that the model expects around it."""
        return list(self.tokenizer.encode(text).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of the ids, special tokens left out."""
        return str(self.tokenizer.decode(list(token_ids), skip_special_tokens=True))


class TextStream:
    """Text of ids as they come: a character is given out once all of its bytes are there."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._token_ids: list[int] = []
        # Decoded together with the new ones, because some tokenizers join
        # neighbours: ids before `_context` are never decoded again.
        self._context = 0
        self._given = 0

    def push(self, token_ids: Iterable[int]) -> str:
        """The text that these ids complete; "" while a character is not complete."""
        self._token_ids.extend(token_ids)
        text = self._fresh()
        if text.endswith(_REPLACEMENT):
            return ""
        self._context, self._given = self._given, len(self._token_ids)
        return text

    def end(self) -> str:
        """The rest, incomplete characters replaced."""
        text = self._fresh()
        self._context = self._given = len(self._token_ids)
        return text

    def _fresh(self) -> str:
        before = self._tokenizer.decode(self._token_ids[self._context : self._given])
        return self._tokenizer.decode(self._token_ids[self._context :])[len(before) :]


def model_id_of(spec: str) -> str:
    """What cards call the model: a local folder's name, otherwise the word itself."""
    path = Path(spec).expanduser()
    return path.resolve().name if _is_path(spec) and path.is_dir() else spec


def open_tokenizer(model: str, override: str | None) -> TextTokenizer:
    """The tokenizer of `model`, or the one at `override` (a folder or a tokenizer.json).

    Raises `CommandFailed` when there is none.
    """
    folder = _override_folder(override) if override else _model_folder(model)
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise CommandFailed(
            "TOKENIZER_NOT_FOUND",
            f"there is no tokenizer.json in {folder}: name another folder with --tokenizer PATH.",
            metadata={"path": str(folder)},
        )
    return TextTokenizer(_read(file), tokenizer_digest(folder), _stop_token_ids(folder))


def check_same(tokenizer: TextTokenizer, served_digest: str, model: str) -> None:
    """Raises `CommandFailed` when the model that is served has another tokenizer."""
    if served_digest and served_digest != tokenizer.digest:
        raise CommandFailed(
            "TOKENIZER_MISMATCH",
            f"the tokenizer here ({tokenizer.digest[:12]}) is not that of {model} as it is served "
            f"({served_digest[:12]}): copy the model's folder from its node, and name it with "
            "--tokenizer PATH.",
            metadata={"here": tokenizer.digest, "served": served_digest},
        )


def _is_path(spec: str) -> bool:
    """Whether a person means a folder: `tiny` stays the shipped model beside a folder tiny/."""
    return spec != "tiny"


def _model_folder(model: str) -> Path:
    try:
        found: ModelFolder = resolve_tokenizer(model)
    except ModelNotFound as error:
        raise CommandFailed(
            "TOKENIZER_NOT_FOUND",
            f"{str(error).rstrip('.')}: name the folder of its tokenizer with --tokenizer PATH.",
            metadata=error.metadata,
        ) from error
    return found.path


def _override_folder(override: str) -> Path:
    path = Path(override).expanduser()
    if path.name == "tokenizer.json":
        path = path.parent
    if not path.is_dir():
        raise CommandFailed(
            "TOKENIZER_NOT_FOUND",
            f"there is no folder {path}: give --tokenizer a folder with a tokenizer.json.",
            metadata={"path": str(path)},
        )
    return path


def _read(file: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    try:
        # The library raises bare Exception for a file that it cannot read.
        return Tokenizer.from_str(file.read_text("utf-8"))
    except Exception as error:
        raise CommandFailed(
            "TOKENIZER_NOT_FOUND",
            f"{file} cannot be read as a tokenizer ({error}): copy it again from the model.",
            metadata={"path": str(file)},
        ) from error


def _stop_token_ids(folder: Path) -> tuple[int, ...]:
    """`eos_token_id` of generation_config.json, else of config.json; one id, several or none."""
    for name in ("generation_config.json", "config.json"):
        try:
            found = json.loads((folder / name).read_bytes()).get("eos_token_id")
        except (OSError, ValueError, AttributeError):
            continue
        ids = found if isinstance(found, list) else [found]
        if ids and all(isinstance(each, int) for each in ids):
            return tuple(ids)
    return ()
