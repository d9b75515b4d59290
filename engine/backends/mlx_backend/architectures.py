"""Which checkpoints mlx-lm's modelling code serves here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import transformers

from kakeya_fleet.engine.backends import architectures
from kakeya_fleet.engine.backends.affine_quantization import Quantization, read_quantization
from kakeya_fleet.engine.backends.architectures import (
    Architecture,
    Problems,
    asks_for,
    common_problems,
    rope_parameters,
)
from kakeya_fleet.engine.backends.families import Family
from kakeya_fleet.engine.backends.mlx_backend.families import FAMILIES, LIBRARY_CODE, LibraryCode
from kakeya_fleet.engine.models.json_object import Entries

YARN_OPTIONS = frozenset({"attention_factor", "mscale", "mscale_all_dim", "truncate"})
"""Options of YaRN that mlx-lm takes otherwise than transformers, or not at all."""


@dataclass(frozen=True)
class MlxArchitecture(Architecture):
    """With what mlx-lm's conversion did to the weights."""

    quantization: Quantization | None

    @property
    def code(self) -> LibraryCode:
        """The library's code of its text part."""
        return LIBRARY_CODE[self.family.text_model]


def read_architecture(folder: Path) -> MlxArchitecture:
    """The architecture of the checkpoint in `folder`; see `architectures.read_architecture`."""
    return architectures.read_architecture(folder, FAMILIES, _made, _problems)


def _made(
    family: Family, config: transformers.PretrainedConfig, entries: Entries
) -> MlxArchitecture:
    return MlxArchitecture(
        family.name, config, family, read_quantization(entries, family.text_name)
    )


def _problems(architecture: MlxArchitecture, entries: Entries) -> Problems:
    """What would run, but not as the model means it."""
    config = architecture.config
    if architecture.quantization is None and asks_for(entries, "quantization_config"):
        yield "weights that another library quantized", {"entry": "quantization_config"}
    yield from common_problems(architecture)
    activation = getattr(config, "hidden_activation", None) or getattr(config, "hidden_act", "silu")
    if activation != architecture.code.activation:
        yield f"activation {activation}", {"activation": str(activation)}
    for rope in rope_parameters(config):
        given = {key for key, value in rope.items() if value is not None}
        if rope.get("rope_type") == "yarn" and YARN_OPTIONS & given:
            yield "options of YaRN that mlx-lm does not take", {"rope_type": "yarn"}
