"""Which checkpoints transformers' modelling code serves here."""

from __future__ import annotations

from pathlib import Path

import transformers

from kakeya_fleet.engine.backends import architectures
from kakeya_fleet.engine.backends.architectures import (
    Architecture,
    Problems,
    asks_for,
    common_problems,
)
from kakeya_fleet.engine.backends.families import FAMILIES, FULL, SLIDING, Family
from kakeya_fleet.engine.models.json_object import Entries


def read_architecture(folder: Path) -> Architecture:
    """The architecture of the checkpoint in `folder`; see `architectures.read_architecture`."""
    return architectures.read_architecture(folder, FAMILIES, _made, _problems)


def _made(
    family: Family,
    config: transformers.PretrainedConfig,
    entries: Entries,  # noqa: ARG001 - all that counts is in the config
) -> Architecture:
    return Architecture(family.name, config, family)


def _problems(architecture: Architecture, entries: Entries) -> Problems:
    """What would run, but not as the model means it."""
    if asks_for(entries, "quantization_config"):
        yield "quantized weights (use the unquantized checkpoint)", {}
    yield from common_problems(architecture)
    kinds = set(architecture.layer_kinds)
    text_model = architecture.family.text_model
    if text_model == "LlamaForCausalLM" and SLIDING in kinds:
        # The library's code has no such layers.
        yield f"layers of kind {SLIDING}", {"layer_types": SLIDING}
    if text_model == "MistralForCausalLM":
        # The library's code goes by sliding_window alone.
        expected = FULL if architecture.config.sliding_window is None else SLIDING
        if kinds != {expected}:
            yield "layer_types against its sliding_window", {"layer_types": expected}
