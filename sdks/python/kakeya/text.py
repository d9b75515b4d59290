"""Text to token ids and back, on the client's side of a session.

Needs the extra `kakeya[text]`. Tokenizers come from a folder in the hub's format
or from a hub id; code that ships with a checkpoint is never run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike, fspath
from typing import Protocol, Self

from kakeya.errors import TextExtraMissing, TokenizerNotFound

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Detokenizer:
    """Turns a stream of ids into a stream of text.

    What was returned is never taken back: text is held until it ends with a
    whole character, because one character may take several ids. The pieces and
    `flush` together are `decode` of all ids, but for bytes that are no
    character: some tokenizers let one spoil its neighbours.

    `decode` is called on the ids since the last two returns only, so that the
    cost of an id does not grow with the text.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        # Ids whose text was returned last give the context for spaces between
        # words; `_returned` of `_ids` are such ids.
        self._ids: list[int] = []
        self._returned = 0

    def push(self, token_ids: Iterable[int]) -> str:
        """The text that `token_ids` complete; empty while a character is incomplete."""
        self._ids.extend(token_ids)
        text = self._pending()
        if not text or text.endswith(_REPLACEMENT):
            return ""
        self._ids = self._ids[self._returned :]
        self._returned = len(self._ids)
        return text

    def flush(self) -> str:
        """The rest, with U+FFFD for what never became a character; starts anew."""
        text = self._pending()
        self._ids = []
        self._returned = 0
        return text

    def _pending(self) -> str:
        if self._returned == len(self._ids):
            return ""
        known = self._decode(self._ids[: self._returned])
        text = self._decode(self._ids)
        if text.startswith(known):
            return text[len(known) :]
        return self._decode(self._ids[self._returned :])


class _Tokenizer(Protocol):
    """What is used of a tokenizer of transformers."""

    eos_token_id: int | None

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...

    def decode(
        self,
        token_ids: Sequence[int],
        *,
        skip_special_tokens: bool,
        clean_up_tokenization_spaces: bool,
    ) -> str: ...

    def apply_chat_template(
        self,
        conversation: list[dict[str, str]],
        *,
        tokenize: bool,
        add_generation_prompt: bool,
    ) -> str: ...


class TextCodec:
    """A model's tokenizer and chat template."""

    def __init__(self, tokenizer: _Tokenizer) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def from_folder(cls, path: str | PathLike[str]) -> Self:
        """The tokenizer of a local folder; never asks the network.

        Raises TextExtraMissing, TokenizerNotFound.
        """
        return cls(_load(fspath(path), local_files_only=True))

    @classmethod
    def from_pretrained(cls, model_id: str) -> Self:
        """The tokenizer of a hub id, through the usual hub cache.

        HF_HOME and HF_HUB_OFFLINE are honoured. Raises TextExtraMissing,
        TokenizerNotFound.
        """
        return cls(_load(model_id, local_files_only=False))

    @property
    def eos_token_id(self) -> int | None:
        """The id that ends a text, for `stop_token_ids`; None when there is none."""
        return self._tokenizer.eos_token_id

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Ids of `text`; with `add_special_tokens` also those that open a text."""
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Text of all `token_ids`, with U+FFFD for bytes that are no character."""
        return self._tokenizer.decode(
            list(token_ids),
            skip_special_tokens=skip_special_tokens,
            clean_up_tokenization_spaces=False,
        )

    def detokenizer(self, *, skip_special_tokens: bool = False) -> Detokenizer:
        """For a stream of ids, as `Session.generate` gives them."""
        return Detokenizer(lambda ids: self.decode(ids, skip_special_tokens=skip_special_tokens))

    def render_chat(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True
    ) -> str:
        """The text of a chat by the model's template.

        A message has `role` and `content`; `add_generation_prompt` opens the
        answer. Encode it without special tokens: the template has its own.
        Raises TokenizerNotFound when the model has no chat template.
        """
        try:
            return self._tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
            )
        except ValueError as error:
            raise TokenizerNotFound(f"no chat template: {error}") from None


def _load(source: str, *, local_files_only: bool) -> _Tokenizer:
    try:
        # Imported with the first tokenizer: it takes half a second and is an extra.
        from transformers import AutoTokenizer  # noqa: PLC0415
    except ImportError as error:
        raise TextExtraMissing(
            f"text needs the extra kakeya[text] ({error}): pip install 'kakeya[text]'"
        ) from None
    try:
        tokenizer: _Tokenizer = AutoTokenizer.from_pretrained(
            source, local_files_only=local_files_only, trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        raise TokenizerNotFound(
            f"no tokenizer at {source}: a folder in the hub's format or a hub id is needed",
            metadata={"source": source, "detail": str(error)},
        ) from None
    return tokenizer
