"""From a checked request to the work it asks for: the model, its tokenizer, the prompt's ids."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kakeya import TextError
from kakeya.text import TextCodec
from kakeya_fleet.node.http.answering import Work
from kakeya_fleet.node.http.chat_request import ChatRequest
from kakeya_fleet.node.http.completion_request import CompletionRequest, Prompt
from kakeya_fleet.node.http.held_calls import held_grammar
from kakeya_fleet.node.http.infill import infill_ids
from kakeya_fleet.node.http.kept_sessions import SessionTerms
from kakeya_fleet.node.http.prompt_encoding import PromptBound
from kakeya_fleet.node.http.refusal import HttpRefusal, bad_field, unsupported
from kakeya_fleet.node.http.request_options import RequestOptions
from kakeya_fleet.node.http.served_models import ServedModel, ServedModels

DEFAULT_CHAT_TOKENS = 4096
"""Of an answer without max_tokens, where the context has room: its K/V are reserved."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Work that is ready to be answered; `prompt_texts` are those of its prompts."""

    work: Work
    model: ServedModel
    prompt_texts: tuple[str, ...] = ()


async def prepare_chat(request: ChatRequest, models: ServedModels) -> Prepared:
    """Renders the messages by the model's template. Raises `HttpRefusal`, `KakeyaError`."""
    model = await models.find(request.options.model)
    codec = await models.codec(model)
    if not codec.has_chat_template:
        raise HttpRefusal(
            "NO_CHAT_TEMPLATE",
            f"{request.options.model} has no chat template: it is no chat model; "
            "send text that it continues to /v1/completions",
            parameter="model",
        )
    bound = PromptBound.of(model.offer, request.parameter)
    text = await asyncio.to_thread(_rendered, codec, request)
    encode = partial(bound.ids, codec, text, add_special_tokens=False)
    prompt = await models.threads.run(len(text), encode)
    options = await _held(codec, request)
    most = _max_tokens(options, bound, len(prompt), DEFAULT_CHAT_TOKENS)
    terms = _terms(options, model)
    work = Work(options, (prompt,), most, codec, show_special=bool(request.tools), terms=terms)
    return Prepared(work, model)


async def _held(codec: TextCodec, request: ChatRequest) -> RequestOptions:
    """Its options, with a grammar of the calls that are held."""
    options = request.options
    if request.held is None:
        return options
    grammar = await asyncio.to_thread(
        held_grammar, codec, options.model, request.tools, request.held
    )
    return replace(options, sampling=replace(options.sampling, grammar=grammar))


async def prepare_completion(request: CompletionRequest, models: ServedModels) -> Prepared:
    """Encodes the prompts. Raises `HttpRefusal`, `KakeyaError`."""
    model = await models.find(request.options.model)
    codec = await models.codec(model)
    bound = PromptBound.of(model.offer, "prompt")
    characters = sum(len(prompt) + len(request.suffix) for prompt in request.prompts)
    prompts = await models.threads.run(characters, partial(_encoded, codec, bound, request))
    length = max(len(prompt) for prompt in prompts)
    most = _max_tokens(request.options, bound, length, request.default_tokens)
    texts: tuple[str, ...] = ()
    if request.echo:
        texts = await asyncio.to_thread(_texts, codec, request.prompts)
    return Prepared(Work(request.options, prompts, most, codec), model, texts)


def knows_tools(codec: TextCodec) -> bool:
    """Whether a model's chat template tells it of tools."""
    asked = {"role": "user", "content": "?"}
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    try:
        told = codec.render_chat([asked], tools=[tool], add_generation_prompt=True)
        return told != codec.render_chat([asked], tools=None, add_generation_prompt=True)
    except TextError:
        return False


def _terms(options: RequestOptions, model: ServedModel) -> SessionTerms | None:
    """Of a session that goes on with the next turn; None where it is not to, or who would say.

    Of several answers nobody knows which one the conversation goes on with.
    """
    if options.choices > 1 or not options.session.reuse:
        return None
    session = replace(options.session, deadline_seconds=None)
    terms = SessionTerms(options.model, model.offer.weights_digest, session)
    return terms if terms.serves(model.offer) else None


def _rendered(codec: TextCodec, request: ChatRequest) -> str:
    tools = request.tools
    text = _render(codec, request, tools)
    if tools and text == _render(codec, request, ()):
        raise unsupported(
            "tools", f"the chat template of {request.options.model} has no tools; leave them out"
        )
    return text


def _render(codec: TextCodec, request: ChatRequest, tools: Sequence[Mapping[str, object]]) -> str:
    try:
        return codec.render_chat(
            request.messages,
            tools=list(tools) or None,
            add_generation_prompt=True,
            **request.variables,
        )
    except TextError as error:
        raise HttpRefusal(
            "TEMPLATE_REFUSED",
            f"the chat template refuses the messages: {error}",
            parameter=request.parameter,
        ) from error


def _encoded(
    codec: TextCodec, bound: PromptBound, request: CompletionRequest
) -> tuple[tuple[int, ...], ...]:
    encoded = tuple(_ids(codec, bound, prompt, request.suffix) for prompt in request.prompts)
    if not all(encoded):
        raise bad_field("prompt", "a prompt has no tokens: a model continues something")
    return encoded


def _ids(codec: TextCodec, bound: PromptBound, prompt: Prompt, suffix: str) -> tuple[int, ...]:
    if not isinstance(prompt, str):
        return prompt
    if suffix:
        return infill_ids(codec, bound, prompt, suffix)
    return bound.ids(codec, prompt, add_special_tokens=True)


def _texts(codec: TextCodec, prompts: Sequence[Prompt]) -> tuple[str, ...]:
    return tuple(prompt if isinstance(prompt, str) else codec.decode(prompt) for prompt in prompts)


def _max_tokens(options: RequestOptions, bound: PromptBound, length: int, default: int) -> int:
    """Tokens of an answer; the context must hold the longest prompt, `length`, with them."""
    wanted = options.max_tokens
    if not bound.context_length:
        return wanted or default
    room = bound.context_length - length
    if room < (wanted or 1):
        asked = f" and {wanted} of the answer" if wanted else ""
        raise bound.refusal(f"{length} of the prompt{asked} do not fit")
    return wanted or min(default, room)
