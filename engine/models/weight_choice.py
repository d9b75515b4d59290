"""What weights are computed as, by choice."""

from __future__ import annotations

from kakeya_fleet.engine.errors import WeightFormatUnsupported

AUTO, BF16, INT8, INT4 = "auto", "bf16", "int8", "int4"
WEIGHTS = (AUTO, BF16, INT8, INT4)
"""As the checkpoint has them, as bfloat16 numbers, or as whole numbers of eight or four bits."""
BITS = {INT8: 8, INT4: 4}
GROUP = 32
"""Inputs of an output that share a scale."""
SCALE_BITS = 16
"""Of a group's scale, and with four bits of its least number: float16."""
SCALES = {INT8: 1, INT4: 2}
"""Numbers of a group that say how its whole ones are read."""


def quantization_of(weights: str, of_checkpoint: str, scales: str = "") -> str:
    """The label on a card, such as `int8-g32-f16`; the checkpoint's own if nothing is chosen.

    `scales` names the numbers that scales are, where a back end has its own layout. Sessions go
    on first where the label is the same, so whatever changes a bit has another one.
    """
    if weights == AUTO:
        return of_checkpoint
    return "-".join(filter(None, (weights, f"g{GROUP}", scales))) if weights in BITS else weights


def whole_bytes(weights: str, outputs: int, inputs: int) -> int:
    """Bytes of a product's weights [outputs, inputs] in whole numbers, its scales included.

    `inputs` are a multiple of `GROUP`, and `outputs` of what a layout pads them to. `weights`
    is one of `BITS`.
    """
    group_bits = GROUP * BITS[weights] + SCALES[weights] * SCALE_BITS
    return outputs * (inputs // GROUP) * group_bits // 8


def head_weights(weights: str) -> str:
    """What the head is taken as: eight bits at least, since choices are made of its outputs."""
    return INT8 if weights == INT4 else weights


def require_auto(weights: str, needed: str) -> None:
    """Raises `WeightFormatUnsupported` for a choice that needs what is `needed`, a phrase."""
    if weights != AUTO:
        raise WeightFormatUnsupported(
            f"weights {weights!r} need {needed}: leave `--weights` at {AUTO}"
        )
