"""The bodies of Ollama's /api/chat and /api/generate as chats, and as texts that go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kakeya_fleet.node.http.answer_grammar import of_ollama_format
from kakeya_fleet.node.http.chat_request import (
    MAX_MESSAGES,
    ChatRequest,
    read_tools,
    template_messages,
)
from kakeya_fleet.node.http.completion_request import CompletionRequest
from kakeya_fleet.node.http.fields import Fields, as_list
from kakeya_fleet.node.http.preparing import DEFAULT_CHAT_TOKENS
from kakeya_fleet.node.http.refusal import bad_field, unsupported
from kakeya_fleet.node.http.request_options import (
    MAX_STOPS,
    MAX_TOKENS,
    RequestOptions,
    read_sampling,
    read_session,
)

HARMLESS = frozenset({"keep_alive"})
"""What changes no token: a node serves its models until it is told otherwise."""
HARMLESS_OPTIONS = frozenset(
    {
        "num_ctx",
        "num_keep",
        "num_batch",
        "num_gpu",
        "main_gpu",
        "num_thread",
        "numa",
        "low_vram",
        "use_mmap",
        "use_mlock",
        "f16_kv",
        "logits_all",
        "vocab_only",
        "penalize_newline",
    }
)
"""Of `options`: how a model would be loaded and computed. The context is the model's own, and a
prompt that does not fit is refused, never cut."""
OPTIONS = HARMLESS_OPTIONS | {
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "stop",
    "num_predict",
    "repeat_penalty",
    "repeat_last_n",
    "presence_penalty",
    "frequency_penalty",
    "typical_p",
    "tfs_z",
    "mirostat",
    "mirostat_eta",
    "mirostat_tau",
}
_SHARED = HARMLESS | {"model", "stream", "options", "format", "think", "kakeya", "logprobs"}
CHAT_FIELDS = _SHARED | {"messages", "tools"}
GENERATE_FIELDS = _SHARED | {
    "prompt",
    "suffix",
    "images",
    "system",
    "template",
    "context",
    "raw",
    "name",
}
"""Fields of a body; others are refused by name."""
DEFAULT_TEMPERATURE, DEFAULT_TOP_K, DEFAULT_TOP_P = 0.8, 40, 0.9
"""Ollama's, where `options` has none."""
_SAMPLING = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "presence_penalty",
    "frequency_penalty",
)
LATEST = ":latest"
"""What Ollama's clients put behind a name without a tag."""


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """A checked body of /api/generate.

    `chat` is what it asks of a model with a chat template, None for one that is `raw` or has a
    suffix; `completion` of one without. Neither where it only asks for the model to be loaded.
    """

    model: str
    chat: ChatRequest | None
    completion: CompletionRequest | None


def read_ollama_chat(body: Mapping[str, object]) -> ChatRequest:
    """Raises `HttpRefusal`, naming the field."""
    fields = Fields(body)
    fields.check_known(CHAT_FIELDS)
    listed = as_list(fields.get("messages"))
    if not 0 < len(listed) <= MAX_MESSAGES:
        raise bad_field("messages", f"messages is a list of 1 to {MAX_MESSAGES} messages")
    messages = [
        _message(Fields.of(each, f"messages[{place}]"), f"messages[{place}]")
        for place, each in enumerate(listed)
    ]
    tools, held = read_tools(fields)
    return ChatRequest(_options(fields), template_messages(messages), tools, held=held)


def read_ollama_generate(body: Mapping[str, object]) -> GenerateRequest:
    """Raises `HttpRefusal`, naming the field."""
    fields = Fields(body)
    fields.check_known(GENERATE_FIELDS)
    fields.refuse("images", ([],), "models here read text only")
    fields.refuse("template", ("",), "a model has its own template; with raw it has none")
    fields.refuse("context", ([],), "send the conversation to /api/chat")
    options, prompt, system = _options(fields), fields.text("prompt"), fields.text("system")
    if not prompt and not system:
        return GenerateRequest(options.model, None, None)
    suffix = fields.text("suffix")
    if suffix or fields.flag("raw"):
        return GenerateRequest(options.model, None, _completion(options, prompt, suffix))
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": prompt})
    chat = ChatRequest(options, template_messages(messages), parameter="prompt")
    return GenerateRequest(options.model, chat, _completion(options, system + prompt))


def _completion(options: RequestOptions, prompt: str, suffix: str = "") -> CompletionRequest:
    return CompletionRequest(
        options, (prompt,), echo=False, default_tokens=DEFAULT_CHAT_TOKENS, suffix=suffix
    )


def _options(fields: Fields) -> RequestOptions:
    fields.refuse("think", (False,), "models here answer as their template says")
    fields.refuse("logprobs", (False,), "take /v1/chat/completions")
    model = fields.text("model") or fields.text("name")
    if not model:
        raise bad_field("model", "model is missing; GET /api/tags lists those that are served")
    given = Fields.of(fields.get("options") or {}, "options")
    given.check_known(OPTIONS)
    mend = "leave it out"
    for key, harmless in (
        ("typical_p", (1,)),
        ("tfs_z", (1,)),
        ("mirostat", (0,)),
    ):
        given.refuse(key, harmless, mend)
    if given.get("repeat_penalty") not in (None, 1):
        given.refuse("repeat_last_n", (-1,), "repeat_penalty weighs against all that was said")
    most = given.whole("num_predict", -2, MAX_TOKENS)
    return RequestOptions(
        model=model.removesuffix(LATEST),
        # Unlike all others, Ollama streams unless told not to.
        stream=fields.flag("stream") if "stream" in fields else True,
        include_usage=True,
        choices=1,
        stops=given.texts("stop", MAX_STOPS),
        # -1 and -2 are as many as there is room for.
        max_tokens=most if most is not None and most > 0 else None,
        sampling=replace(
            read_sampling(_sampling(given)), grammar=of_ollama_format(fields.get("format"))
        ),
        session=read_session(fields),
        ignored=(*fields.present(HARMLESS), *given.present(HARMLESS_OPTIONS)),
    )


def _sampling(given: Fields) -> Fields:
    """Ollama's options by OpenAI's names."""
    named = {key: given.get(key) for key in _SAMPLING}
    named["repetition_penalty"] = given.get("repeat_penalty")
    defaults = {
        "temperature": DEFAULT_TEMPERATURE,
        "top_k": DEFAULT_TOP_K,
        "top_p": DEFAULT_TOP_P,
    }
    told = {key: value for key, value in named.items() if value is not None}
    return Fields({**defaults, **told}, "options")


def _message(message: Fields, name: str) -> dict[str, Any]:
    """In OpenAI's shape, whose calls of tools have ids, and their arguments as text."""
    message.refuse("images", ([],), "models here read text only")
    said: dict[str, Any] = {"role": message.text("role"), "content": message.text("content")}
    if "thinking" in message:
        said["thinking"] = message.text("thinking")
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise bad_field(f"{name}.tool_calls", f"{name}.tool_calls is a list of calls")
    if calls:
        said["tool_calls"] = [
            {"type": "function", "function": _function(each, f"{name}.tool_calls[{place}]")}
            for place, each in enumerate(calls)
        ]
    if "tool_name" in message:
        said["name"] = message.text("tool_name")
    return said


def _function(value: object, name: str) -> dict[str, Any]:
    function = Fields.of(Fields.of(value, name).get("function"), f"{name}.function")
    if not function.text("name"):
        raise unsupported(f"{name}.function", f"{name} names no function")
    return {"name": function.text("name"), "arguments": function.get("arguments") or {}}
