"""What version 2 of DFlash adds to a drafter, and how its config says it.

DFlash 2 (Z Lab, 2026; served alike by vLLM #52816, SGLang #35371 and llama.cpp #27342) keeps the
drafter of version 1. Around each attention and each MLP stand convolutions over the block's rows
(`convolution.py`), and a selector chooses a path through each row's candidates (`selector.py`). A
confidence head is DSpark's (DeepSpec, 2026; llama.cpp #25173), see `confidence.py`: no published
checkpoint of version 2 has one, and what its entries mean here is said at `ConfidenceShape`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kakeya_fleet.engine.backends.dflash.checked_entries import flag, positive, real

ARCHITECTURE_2 = "DFlash2DraftModel"
VERSION_2 = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
"""Entries that each checkpoint of version 2 has, and none of version 1."""

CONFIDENCE_HEAD = "enable_confidence_head"
WITH_PREDECESSOR = "confidence_head_with_markov"
THRESHOLD = "confidence_threshold"
CONFIDENCE = (CONFIDENCE_HEAD, WITH_PREDECESSOR, THRESHOLD)


@dataclass(frozen=True, slots=True)
class ConvolutionShape:
    """`taps` rows, its own and those before, count for a row.

    `group_size` numbers of a row share what a row adds to the taps.
    """

    taps: int
    group_size: int


@dataclass(frozen=True, slots=True)
class SelectorShape:
    """A path leads through `top_k` candidates of each row; tokens have `rank` numbers.

    What a candidate's logit x counts is `multiplier` x, and with a `softcap` c
    c tanh(multiplier x / c).
    """

    rank: int
    top_k: int
    multiplier: float
    softcap: float | None


@dataclass(frozen=True, slots=True)
class ConfidenceShape:
    """A block is cut before the first row whose confidence is below `threshold`.

    With 0, what counts where the config gives none, no block is cut: DeepSpec's own default,
    whose configs name no threshold. With `with_predecessor`
    (`confidence_head_with_markov`) the head sees, behind a row's hidden state, the numbers by
    which the selector knows the token before: in DSpark the Markov head's embedding of it, which
    the selector's table of predecessors is here.
    """

    with_predecessor: bool
    threshold: float


@dataclass(frozen=True, slots=True)
class Version2:
    """What a drafter of version 2 has beside one of version 1; `confidence` None without a head."""

    convolution: ConvolutionShape
    selector: SelectorShape
    confidence: ConfidenceShape | None


def read_version_2(
    values: Mapping[str, object], *, hidden_size: int, vocabulary_size: int, block_size: int
) -> Version2:
    """What the entries `values` say. Raises `LookupError` and `ValueError`, naming the entry."""
    for name in VERSION_2:
        if values.get(name) is None:
            raise LookupError(f"it has no {name}")
    taps, group_size, rank, top_k = (positive(name, values[name]) for name in VERSION_2)
    if taps > block_size:
        raise ValueError(f"conv_kernel_size {taps} is more than the block_size {block_size}")
    if hidden_size % group_size:
        raise ValueError(f"conv_group_size {group_size} does not divide hidden_size {hidden_size}")
    if top_k > vocabulary_size:
        raise ValueError(f"selector_top_k {top_k} is more than the vocab_size {vocabulary_size}")
    softcap = values.get("final_logit_softcapping")
    return Version2(
        ConvolutionShape(taps, group_size),
        SelectorShape(
            rank,
            top_k,
            multiplier=real("output_multiplier", values.get("output_multiplier", 1.0)),
            softcap=None if softcap is None else real("final_logit_softcapping", softcap),
        ),
        _confidence(values),
    )


def _confidence(values: Mapping[str, object]) -> ConfidenceShape | None:
    if not flag(CONFIDENCE_HEAD, values.get(CONFIDENCE_HEAD, False)):
        if values.get(THRESHOLD) is not None:
            raise ValueError(f"{THRESHOLD} is given and {CONFIDENCE_HEAD} is not true")
        return None
    if values.get(WITH_PREDECESSOR) is None:
        raise LookupError(f"it has {CONFIDENCE_HEAD} and no {WITH_PREDECESSOR}")
    threshold = values.get(THRESHOLD, 0.0)
    if isinstance(threshold, bool) or not isinstance(threshold, int | float):
        raise ValueError(f"{THRESHOLD} is {threshold!r}, not a number")
    if not 0.0 <= threshold < 1.0:
        raise ValueError(f"{THRESHOLD} is {threshold!r}, not from 0 on and below 1")
    return ConfidenceShape(flag(WITH_PREDECESSOR, values[WITH_PREDECESSOR]), float(threshold))
