"""Text to token ids and back, with the verifier's own tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kakeya import AsyncClient, TextError, TokenizerNotFound, Unimplemented
from kakeya.text import Detokenizer, TextCodec
from kakeya_fleet.engine.errors import ModelNotFound
from kakeya_fleet.engine.models.gguf.source import gguf_id_of, names_gguf
from kakeya_fleet.engine.models.model_folder import resolve_tokenizer
from kakeya_fleet.node.cli.shell.failure import CommandFailed


@dataclass(frozen=True, slots=True)
class TextTokenizer:
    """A tokenizer as commands use it: prompts and answers are plain text, no chats."""

    codec: TextCodec

    @property
    def digest(self) -> str:
        """What cards call the tokenizer."""
        return self.codec.digest

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Ids that end an answer."""
        return self.codec.stop_token_ids

    def encode(self, text: str) -> list[int]:
        """Ids of the text, with the special tokens that the model expects around it."""
        return self.codec.encode(text, add_special_tokens=True)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of the ids, special tokens left out."""
        return self.codec.decode(token_ids, skip_special_tokens=True)

    def stream(self) -> Detokenizer:
        """The text of ids as they come, special tokens left out."""
        return self.codec.detokenizer(skip_special_tokens=True)


def model_id_of(spec: str) -> str:
    """What cards call the model: a local folder's or file's name, otherwise the word itself."""
    if names_gguf(spec):
        return gguf_id_of(spec)
    path = Path(spec).expanduser()
    return path.resolve().name if _is_path(spec) and path.is_dir() else spec


async def tokenizer_of(
    client: AsyncClient, model: str, spec: str, override: str | None
) -> TextTokenizer:
    """The tokenizer at `override`, else the one that the model's node serves with it.

    A node that sends none leaves the model that `spec` names on this machine. Raises
    `CommandFailed` when there is none, `KakeyaError` of the call.
    """
    if override:
        return open_tokenizer(spec, override)
    try:
        return TextTokenizer(await client.text(model))
    except (TokenizerNotFound, Unimplemented):
        return open_tokenizer(spec, None)


def open_tokenizer(model: str, override: str | None) -> TextTokenizer:
    """The tokenizer of `model` here, or the one at `override` (a folder or a tokenizer.json).

    Raises `CommandFailed` when there is none.
    """
    folder = _override_folder(override) if override else _model_folder(model)
    try:
        return TextTokenizer(TextCodec.from_folder(folder))
    except TextError as error:
        raise CommandFailed(
            error.reason,
            f"{error}; name another folder with --tokenizer PATH.",
            metadata={"path": str(folder), **error.metadata},
        ) from error


def check_same(tokenizer: TextTokenizer, served_digest: str, model: str) -> None:
    """Raises `CommandFailed` when the model that is served has another tokenizer."""
    if served_digest and served_digest != tokenizer.digest:
        raise CommandFailed(
            "TOKENIZER_MISMATCH",
            f"the tokenizer here ({tokenizer.digest[:12]}) is not that of {model} as it is served "
            f"({served_digest[:12]}): leave --tokenizer out, or name the served model's folder.",
            metadata={"here": tokenizer.digest, "served": served_digest},
        )


def _is_path(spec: str) -> bool:
    """Whether a person means a folder: `tiny` stays the shipped model beside a folder tiny/."""
    return spec != "tiny"


def _model_folder(model: str) -> Path:
    try:
        return resolve_tokenizer(model).path
    except ModelNotFound as error:
        raise CommandFailed(
            "TOKENIZER_NOT_FOUND",
            f"{str(error).rstrip('.')}: name the folder of its tokenizer with --tokenizer PATH.",
            metadata=error.metadata,
        ) from error


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
