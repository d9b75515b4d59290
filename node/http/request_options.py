"""What both endpoints' requests say of sampling and of the session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kakeya import KvQuality, KvStrategy, RestorerKind, Speculation
from kakeya_fleet.engine.sampling.logit_bias import MAX_BIASES
from kakeya_fleet.node.grammars.grammar import Grammar
from kakeya_fleet.node.http.answer_grammar import FIELDS as GRAMMAR_FIELDS
from kakeya_fleet.node.http.answer_grammar import read_grammar
from kakeya_fleet.node.http.fields import Fields
from kakeya_fleet.node.http.refusal import bad_field

MAX_STOPS = 64
"""Each is looked for in every piece of an answer. OpenAI has 4, Anthropic's clients send more."""
MAX_TOP_LOG_PROBABILITIES = 20
MAX_TOKENS = 1 << 20
MAX_CHOICES = 16
"""Answers of one request, prompts times `n`: each is a session of its own."""
SEED_RANGE = 1 << 64

SHARED_FIELDS = GRAMMAR_FIELDS | frozenset(
    {
        "model",
        "stream",
        "stream_options",
        "return_progress",
        "n",
        "stop",
        "seed",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "repetition_penalty",
        "logit_bias",
        "max_tokens",
        "logprobs",
        "presence_penalty",
        "frequency_penalty",
        "kakeya",
        "user",
    }
)
_KAKEYA_FIELDS = frozenset(
    {
        "speculation",
        "kv_strategy",
        "sink_tokens",
        "window_tokens",
        "restorer",
        "kv_quality",
        "kv_quality_when_short",
        "deadline_seconds",
        "reuse",
    }
)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen; the fields are those of `AsyncSession.generate`."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    logit_bias: Mapping[int, float]
    seed: int | None
    top_log_probabilities: int | None
    grammar: Grammar | None = None

    def of_choice(self, index: int) -> dict[str, Any]:
        """Arguments for one answer: each draws from a seed of its own, seed + index."""
        seed = None if self.seed is None else (self.seed + index) % SEED_RANGE
        return {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": self.min_p,
            "repetition_penalty": self.repetition_penalty,
            "logit_bias": self.logit_bias or None,
            "seed": seed,
            "top_log_probabilities": self.top_log_probabilities,
            "frequency_penalty": self.frequency_penalty,
            "presence_penalty": self.presence_penalty,
            **self._held(),
        }

    def _held(self) -> dict[str, Any]:
        """The grammar, which clients name by its kind."""
        return {} if self.grammar is None else {self.grammar.kind.value: self.grammar.text}


@dataclass(frozen=True, slots=True)
class SessionFields:
    """How the session is to be kept; the body's `kakeya` object.

    With `reuse` a chat's is that of the turn before, where that is still there.
    """

    kv_strategy: KvStrategy = KvStrategy.FULL
    sink_tokens: int | None = None
    window_tokens: int | None = None
    restorer: RestorerKind | None = None
    kv_quality: KvQuality | None = None
    kv_quality_when_short: KvQuality | None = None
    speculation: str | Speculation = "auto"
    deadline_seconds: float | None = None
    reuse: bool = True


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """What a request asks for, whatever its endpoint."""

    model: str
    stream: bool
    include_usage: bool
    choices: int
    stops: tuple[str, ...]
    max_tokens: int | None
    sampling: Sampling
    session: SessionFields
    ignored: tuple[str, ...] = ()
    """Fields that were read past, since they change no token; the answer's header names them."""
    return_progress: bool = False
    """Whether the stream's chunks tell how far the prompt is read."""


def read_options(fields: Fields, top_log_probabilities: int | None) -> RequestOptions:
    """The shared fields of a body. Raises `HttpRefusal`."""
    model = fields.text("model")
    if not model:
        raise bad_field("model", "model is missing; GET /v1/models lists those that are served")
    stream = fields.flag("stream")
    return_progress = fields.flag("return_progress")
    return RequestOptions(
        model=model,
        stream=stream,
        include_usage=_include_usage(fields, stream=stream),
        choices=fields.whole("n", 1, MAX_CHOICES) or 1,
        stops=fields.texts("stop", MAX_STOPS),
        max_tokens=fields.whole("max_tokens", 1, MAX_TOKENS),
        sampling=read_sampling(fields, top_log_probabilities),
        session=read_session(fields),
        # An answer that comes whole has nobody to tell meanwhile.
        ignored=("return_progress",) if return_progress and not stream else (),
        return_progress=return_progress and stream,
    )


def _include_usage(fields: Fields, *, stream: bool) -> bool:
    if "stream_options" not in fields:
        return False
    if not stream:
        raise bad_field("stream_options", "stream_options is only for stream = true")
    usage = Fields.of(fields.get("stream_options"), "stream_options")
    usage.check_known({"include_usage", "include_obfuscation"})
    return usage.flag("include_usage")


def read_sampling(fields: Fields, top_log_probabilities: int | None = None) -> Sampling:
    """How tokens are chosen, as the fields of OpenAI's names say."""
    seed = fields.whole("seed", -(1 << 63), SEED_RANGE - 1)
    return Sampling(
        # OpenAI's default is 1, unlike the client's.
        temperature=fields.number("temperature", 0.0, 2.0, 1.0),
        top_p=fields.number("top_p", 0.0, 1.0, 1.0),
        # Some clients say -1 for all.
        top_k=max(0, fields.whole("top_k", -1, (1 << 31) - 1) or 0),
        min_p=fields.number("min_p", 0.0, 1.0, 0.0),
        repetition_penalty=fields.number("repetition_penalty", 1 / 64, 64.0, 1.0),
        frequency_penalty=fields.number("frequency_penalty", -2.0, 2.0, 0.0),
        presence_penalty=fields.number("presence_penalty", -2.0, 2.0, 0.0),
        logit_bias=_logit_bias(fields),
        seed=None if seed is None else seed % SEED_RANGE,
        top_log_probabilities=top_log_probabilities,
        grammar=read_grammar(fields),
    )


def _logit_bias(fields: Fields) -> Mapping[int, float]:
    if "logit_bias" not in fields:
        return {}
    biases = Fields.of(fields.get("logit_bias"), "logit_bias")
    raw = fields.get("logit_bias")
    result: dict[int, float] = {}
    # Before one is looked at: there may be a hundred thousand.
    if isinstance(raw, Mapping) and len(raw) > MAX_BIASES:
        raise bad_field(
            "logit_bias", f"logit_bias has {len(raw)} ids, at most {MAX_BIASES} may be biased"
        )
    for key in raw if isinstance(raw, Mapping) else ():
        if not (isinstance(key, str) and key.isascii() and key.isdecimal()) or len(key) > 9:
            raise bad_field("logit_bias", f"logit_bias has token ids as keys, not {key[:40]!r}")
        bias = biases.number(key, -100.0, 100.0, 0.0)
        # As with OpenAI, -100 bans a token.
        result[int(key)] = float("-inf") if bias == -100.0 else bias
    return result


def read_session(fields: Fields) -> SessionFields:
    """How the session is kept, as the field `kakeya` says."""
    if "kakeya" not in fields:
        return SessionFields()
    inner = Fields.of(fields.get("kakeya"), "kakeya")
    inner.check_known(_KAKEYA_FIELDS)
    strategy = _one_of(inner, "kv_strategy", KvStrategy)
    restorer = _one_of(inner, "restorer", RestorerKind)
    quality = _one_of(inner, "kv_quality", KvQuality)
    when_short = _one_of(inner, "kv_quality_when_short", KvQuality)
    return SessionFields(
        kv_strategy=KvStrategy(strategy) if strategy else KvStrategy.FULL,
        sink_tokens=inner.whole("sink_tokens", 0, 1 << 20),
        window_tokens=inner.whole("window_tokens", 1, 1 << 20),
        restorer=RestorerKind(restorer) if restorer else None,
        kv_quality=KvQuality(quality) if quality else None,
        kv_quality_when_short=KvQuality(when_short) if when_short else None,
        speculation=_speculation(inner),
        deadline_seconds=inner.number("deadline_seconds", 0.0, 86_400.0, 0.0) or None,
        reuse=inner.flag("reuse") if "reuse" in inner else True,
    )


def known_names(kind: type[KvStrategy | RestorerKind | KvQuality]) -> list[str]:
    """What a body may name of it."""
    return [each.value for each in kind if each.value not in {"unknown", "none", "unspecified"}]


def _one_of(fields: Fields, key: str, kind: type[KvStrategy | RestorerKind | KvQuality]) -> str:
    value = fields.text(key)
    known = known_names(kind)
    if value and value not in known:
        name = fields.named(key)
        raise bad_field(name, f"{name} is one of {', '.join(known)}, not {value[:40]!r}")
    return value


def _speculation(fields: Fields) -> str | Speculation:
    value = fields.get("speculation")
    if value is None or value in ("auto", "off"):
        return "auto" if value is None else str(value)
    if not isinstance(value, Mapping):
        raise bad_field(
            "kakeya.speculation",
            'kakeya.speculation is "auto", "off" or {"proposer_model": ...}, '
            f"not {str(value)[:40]!r}",
        )
    pair = Fields(value, "kakeya.speculation")
    pair.check_known({"proposer_model", "node_id", "block_size"})
    return Speculation(
        pair.text("proposer_model"),
        pair.text("node_id"),
        pair.whole("block_size", 0, 15) or 0,
    )
