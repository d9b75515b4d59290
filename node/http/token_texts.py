"""Log-probabilities of an answer's tokens in OpenAI's two shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from kakeya_fleet.node.http.answer_text import ScoredToken

# JSON has no infinity.
LEAST_LOG_PROBABILITY = -9999.0
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

Decode = Callable[[Sequence[int]], str]


def chat_log_probabilities(tokens: Sequence[ScoredToken], decode: Decode) -> dict[str, object]:
    """As /v1/chat/completions has them. `bytes` is null where a token is part of a character."""
    content = [
        {
            **_entry(token.token_id, token.log_probability, decode),
            "top_logprobs": [
                _entry(other.token_id, other.log_probability, decode)
                for other in token.alternatives
            ],
        }
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def completion_log_probabilities(
    tokens: Sequence[ScoredToken], decode: Decode
) -> dict[str, object]:
    """As /v1/completions has them; the offsets are characters of the answer's text."""
    tops: list[dict[str, float]] = []
    for token in tokens:
        top: dict[str, float] = {}
        for other in token.alternatives:
            # Of two tokens with one text the more probable is first, and stays.
            top.setdefault(decode((other.token_id,)), _finite(other.log_probability))
        tops.append(top)
    return {
        "tokens": [decode((token.token_id,)) for token in tokens],
        "token_logprobs": [_finite(token.log_probability) for token in tokens],
        "top_logprobs": tops,
        "text_offset": [token.offset for token in tokens],
    }


def _entry(token_id: int, log_probability: float, decode: Decode) -> dict[str, object]:
    text = decode((token_id,))
    return {
        "token": text,
        "logprob": _finite(log_probability),
        "bytes": None if _REPLACEMENT in text else list(text.encode()),
    }


def _finite(value: float) -> float:
    return value if math.isfinite(value) else LEAST_LOG_PROBABILITY
