"""Text to token ids and back, on the client's side of a session.

Needs the extra `kakeya[text]`. Tokenizers come from the node that serves the model
(`AsyncClient.text`), from a folder in the hub's format or from a hub id; code that
ships with a checkpoint is never run, but for its chat template, in a sandbox.
`from_openai_messages` needs no extra.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

from kakeya.errors import ChatTemplateNotFound, TextExtraMissing, TokenizerNotFound
from kakeya.openai_messages import from_openai_messages
from kakeya.tokenizer_folder import TOKENIZER_FILES, TokenizerFolder, read_folder

if TYPE_CHECKING:
    from kakeya.chat_template import ChatTemplate

__all__ = ["Detokenizer", "TextCodec", "from_openai_messages"]

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Encoding(Protocol):
    """An encoded text."""

    @property
    def ids(self) -> Sequence[int]:
        """The ids; listed anew each time."""

    def __len__(self) -> int:
        """How many ids there are."""


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


class TextCodec:
    """A model's tokenizer and chat template. Shared between threads freely."""

    def __init__(self, folder: TokenizerFolder) -> None:
        self._folder = folder
        self._compiled: dict[str, ChatTemplate] = {}

    @classmethod
    def from_folder(cls, path: str | PathLike[str]) -> Self:
        """The tokenizer of a local folder; never asks the network.

        Raises TextExtraMissing, TokenizerNotFound.
        """
        return cls(read_folder(Path(path)))

    @classmethod
    def from_pretrained(cls, model_id: str) -> Self:
        """The tokenizer of a hub id, through the usual hub cache.

        HF_HOME and HF_HUB_OFFLINE are honoured. Raises TextExtraMissing,
        TokenizerNotFound.
        """
        return cls(read_folder(_downloaded(model_id)))

    @property
    def digest(self) -> str:
        """The tokenizer's digest, as cards have it: SHA-256 in hexadecimal."""
        return self._folder.digest

    @property
    def eos_token_id(self) -> int | None:
        """The id that ends a text; None when there is none."""
        eos = self._folder.named_tokens.get("eos_token")
        return None if eos is None else self._folder.tokenizer.token_to_id(eos)

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Ids that end an answer, for sessions: the model's own, else `eos_token_id`."""
        return self._folder.stop_token_ids

    @property
    def has_chat_template(self) -> bool:
        """Whether `render_chat` can work."""
        return bool(self._folder.templates)

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Ids of `text`; with `add_special_tokens` also those that open or end a text."""
        return list(self.encoding(text, add_special_tokens=add_special_tokens).ids)

    def encoding(self, text: str, *, add_special_tokens: bool = False) -> Encoding:
        """As `encode`, before the ids are listed: their number costs nothing.

        Other threads run meanwhile: a text of megabytes takes seconds.
        """
        # `encode` of one text keeps the interpreter's lock all the while.
        (encoding,) = self._folder.tokenizer.encode_batch_fast(
            [text], add_special_tokens=add_special_tokens
        )
        return cast("Encoding", encoding)

    @cached_property
    def longest_token_characters(self) -> int:
        """Characters that a token stands for at most.

        A vocabulary writes bytes as characters, so that a token has no fewer than its text.
        """
        return max(map(len, self._folder.tokenizer.get_vocab(with_added_tokens=True)), default=1)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Text of all `token_ids`, with U+FFFD for bytes that are no character."""
        ids = list(token_ids)
        return str(self._folder.tokenizer.decode(ids, skip_special_tokens=skip_special_tokens))

    def detokenizer(self, *, skip_special_tokens: bool = False) -> Detokenizer:
        """For a stream of ids, as `Session.generate` gives them."""
        return Detokenizer(lambda ids: self.decode(ids, skip_special_tokens=skip_special_tokens))

    def tokens_for_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> list[int]:
        """Ids of a chat by the model's template, ready to open a session with, or to append.

        As `render_chat`, encoded without special tokens, because the template has its
        own. `variables` are the template's: the thinking switch of Qwen3's templates is
        enable_thinking=False. Raises what `render_chat` raises.
        """
        text = self.render_chat(
            messages, tools=tools, add_generation_prompt=add_generation_prompt, **variables
        )
        return self.encode(text)

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The text of a chat by the model's template.

        A message has `role` and `content`, and what else the template knows; `tools`
        are JSON schemas of functions; `add_generation_prompt` opens the answer;
        `variables` are the template's own, such as enable_thinking=False. Encode the
        text without special tokens: the template has its own. A template runs in a
        sandbox. Raises ChatTemplateNotFound, ChatTemplateError, TextExtraMissing.
        """
        template = self._template("tool_use" if tools is not None else "default")
        return template.render(
            messages,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            variables={**self._folder.named_tokens, **variables},
        )

    def _template(self, name: str) -> ChatTemplate:
        templates = self._folder.templates
        chosen = name if name in templates else "default"
        if chosen not in templates:
            known = f": it has {', '.join(sorted(templates))} alone" if templates else ""
            raise ChatTemplateNotFound(
                f"the model has no chat template{known}; give its text as it is, or take a model "
                "that was trained for chats"
            )
        if chosen not in self._compiled:
            self._compiled[chosen] = _compile(templates[chosen])
        return self._compiled[chosen]


def _compile(source: str) -> ChatTemplate:
    try:
        # Imported with the first template: an extra.
        from kakeya.chat_template import ChatTemplate  # noqa: PLC0415
    except ImportError as error:
        raise _extra_missing(error) from None
    return ChatTemplate(source)


def _downloaded(model_id: str) -> Path:
    try:
        # Comes with the tokenizers library.
        from huggingface_hub import snapshot_download  # noqa: PLC0415
    except ImportError as error:
        raise _extra_missing(error) from None
    try:
        return Path(snapshot_download(model_id, allow_patterns=list(TOKENIZER_FILES)))
    except (OSError, ValueError) as error:
        raise TokenizerNotFound(
            f"no tokenizer at {model_id}: a hub id is needed, and the hub or its cache",
            metadata={"source": model_id, "detail": str(error)},
        ) from None


def _extra_missing(error: ImportError) -> TextExtraMissing:
    return TextExtraMissing(
        f"text needs the extra kakeya[text] ({error}): pip install 'kakeya[text]'"
    )
