"""Filling in the middle: what comes before an answer and behind it, as models were trained to read.

Bavarian et al., "Efficient Training of Language Models to Fill in the Middle" (2022), in the order
prefix, suffix, middle, each behind a token of its own.
"""

from __future__ import annotations

from kakeya.text import TextCodec
from kakeya_fleet.node.http.prompt_encoding import PromptBound
from kakeya_fleet.node.http.refusal import unsupported

MARKS = (
    # Qwen2.5-Coder, CodeGemma.
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    # StarCoder, Granite Code.
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    # DeepSeek-Coder.
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
)
"""Tokens before what comes first, what comes behind, and the answer; by family."""


def infill_ids(codec: TextCodec, bound: PromptBound, before: str, behind: str) -> tuple[int, ...]:
    """The prompt of an answer between two texts.

    Raises `HttpRefusal` for a model whose tokenizer has no such tokens, and as `PromptBound.ids`.
    """
    marks = _marks(codec)
    if marks is None:
        raise unsupported(
            "suffix",
            f"{bound.model_id} has no tokens for filling in the middle, such as {MARKS[0][0]};"
            " leave out suffix, or ask a model that was trained for it",
        )
    first, second, last = marks
    opening = codec.encode("", add_special_tokens=True)
    prefix = bound.ids(codec, before, add_special_tokens=False)
    suffix = bound.ids(codec, behind, add_special_tokens=False)
    return (*opening, first, *prefix, second, *suffix, last)


def _marks(codec: TextCodec) -> tuple[int, int, int] | None:
    """Ids of the family's tokens: what is no token of a vocabulary takes several."""
    for family in MARKS:
        ids = [codec.encode(mark) for mark in family]
        if all(len(each) == 1 for each in ids):
            return ids[0][0], ids[1][0], ids[2][0]
    return None
