"""A chat: words out, an answer's words back, over one session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self, Unpack

from kakeya.answer import LONGEST_ANSWER, AsyncAnswer, Floor, Pieces, Words
from kakeya.conversation import Conversation, Message, Render, plain_text
from kakeya.errors import BadRequest, ChatTemplateNotFound, ModelNotFound
from kakeya.generated.values import GenerationDone, Liveness, Role
from kakeya.generation import AsyncGeneration
from kakeya.options import ChatOptions, GenerateOptions
from kakeya.session import AsyncSession
from kakeya.text import TextCodec
from kakeya.values import Tokens
from kakeya.watch_values import NodeStatus


class AsyncChat:
    """A conversation with a model. Made by `AsyncClient.chat`.

    Each turn appends its own tokens alone; where the model's template writes earlier
    turns anew, the session goes back to the longest prefix that still holds. What arrived
    of an answer that was left stays in the conversation, as it was said; an answer that
    was left or failed before its first token takes its question back. A context manager
    that closes the session.
    """

    def __init__(
        self,
        session: AsyncSession,
        codec: TextCodec,
        conversation: Conversation,
        options: ChatOptions,
    ) -> None:
        self._session = session
        self._codec = codec
        self._conversation = conversation
        self._options = options
        self._floor = Floor()
        # The latest exchange, until its answer is in the conversation.
        self._exchange: _Exchange | None = None

    @property
    def session(self) -> AsyncSession:
        """The session that holds the conversation as token ids.

        What is appended or rewound there by hand, the next turn undoes.
        """
        return self._session

    @property
    def messages(self) -> tuple[Message, ...]:
        """What was said, oldest first, the system's words before all else.

        An answer that is not at its end is there as far as it came.
        """
        exchange = self._exchange
        said = self._conversation.messages
        if exchange is None or not exchange.words.text:
            return said
        return (*said, Message("assistant", exchange.words.text))

    def say(
        self, text: str, *, max_tokens: int | None = None, **options: Unpack[GenerateOptions]
    ) -> AsyncAnswer:
        """The person's next words; gives the answer, at most `max_tokens` long.

        Options count for this answer, in place of the chat's. Raises BadRequest. Nothing is
        sent before the iteration begins, which raises SessionBusy while another answer
        comes, ChatTemplateError, and what `AsyncSession.append` and `generate` raise; the
        conversation then goes on from where it was.
        """
        longest = self._options.get("max_tokens", LONGEST_ANSWER)
        sampling: GenerateOptions = {**self._options.get("sampling", {}), **options}
        generation = self._session.generate(
            longest if max_tokens is None else max_tokens, **sampling
        )
        stops = (
            *self._codec.stop_token_ids,
            *self._options.get("stop_token_ids", ()),
            *sampling.get("stop_token_ids", ()),
        )
        words = Words(self._codec, stops)
        return AsyncAnswer(_Exchange(text, generation, words, self._ask, self._keep))

    def undo(self) -> str | None:
        """Forgets the latest question and its answer; gives the question, None without one.

        The session goes back with the next turn. Raises SessionBusy while an answer comes.
        """
        self._floor.check()
        self._keep()
        taken = self._conversation.take_back()
        return None if taken is None else taken.content

    async def close(self) -> None:
        """Closes the session. Raises SessionNotFound the second time."""
        await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._session.__aexit__(kind, error, traceback)

    async def _ask(self, exchange: _Exchange, pieces: Pieces) -> None:
        """Brings the history to where the answer begins."""
        self._floor.take(pieces)
        self._keep()
        session = self._session
        history = session.history
        turn = self._conversation.ask(exchange.question, history)
        self._exchange = exchange
        if turn.keep < len(history):
            await session.rewind(turn.keep)
        if turn.append:
            await session.append(turn.append)
        exchange.answer_begins = session.history_length

    def _keep(self, exchange: _Exchange | None = None) -> None:
        """Puts the answer of the latest exchange, or of this one, into the conversation."""
        kept = self._exchange
        if kept is None or exchange not in (None, kept):
            return
        self._exchange = None
        begins = kept.answer_begins
        received = () if begins is None else self._session.history[begins:]
        if received:
            self._conversation.answered(received, kept.words.text)
        else:
            self._conversation.take_back()


def rendering(codec: TextCodec, model: str, options: ChatOptions) -> Render:
    """How a chat becomes text. Raises ChatTemplateNotFound for a model without a template."""
    if options.get("plain", False):
        return plain_text
    if not codec.has_chat_template:
        raise ChatTemplateNotFound(
            f"{model} has no chat template, so its turns cannot be told apart: join them "
            "plainly (plain), or let a session say text as it is",
            metadata={"model": model},
        )
    variables = options.get("variables", {})

    def render(messages: Sequence[Message]) -> str:
        return codec.render_chat(
            [{"role": each.role, "content": each.content} for each in messages], **variables
        )

    return render


def only_verifier(nodes: Sequence[NodeStatus]) -> str:
    """The one model that live nodes verify.

    Raises ModelNotFound for none, BadRequest for several, which `metadata["models"]` lists.
    """
    models = sorted(
        {
            offer.model_id
            for node in nodes
            if node.liveness is Liveness.ALIVE
            for offer in node.models
            if offer.role is Role.VERIFIER
        }
    )
    if not models:
        raise ModelNotFound(
            "no live node serves a verifier",
            metadata={"mend": "start one: fleet join --serve verifier=MODEL"},
        )
    if len(models) > 1:
        listed = ", ".join(models)
        raise BadRequest(
            f"the fleet serves several verifiers: model is one of {listed}",
            metadata={"field": "model", "models": listed},
        )
    return models[0]


class _Exchange:
    """A question and its answer: the `Speech` of a chat's answers."""

    def __init__(
        self,
        question: str,
        generation: AsyncGeneration,
        words: Words,
        ask: Callable[[_Exchange, Pieces], Awaitable[None]],
        keep: Callable[[_Exchange], None],
    ) -> None:
        self.question = question
        self.words = words
        # The length of the history before the answer; None until the question is appended.
        self.answer_begins: int | None = None
        self._generation = generation
        self._ask = ask
        self._keep = keep

    @property
    def done(self) -> GenerationDone | None:
        return self._generation.done

    async def begin(self, pieces: Pieces) -> tuple[AsyncIterator[Tokens], Words]:
        await self._ask(self, pieces)
        return aiter(self._generation), self.words

    async def leave(self) -> None:
        await self._generation.aclose()

    def end(self) -> None:
        self._keep(self)
