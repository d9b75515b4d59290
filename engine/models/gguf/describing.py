"""Which model a GGUF file is of, among those that are served."""

from __future__ import annotations

from kakeya_fleet.engine.errors import ArchitectureUnsupported, GgufInvalid
from kakeya_fleet.engine.models.gguf.described import Described
from kakeya_fleet.engine.models.gguf.entries import Entries
from kakeya_fleet.engine.models.gguf.gemma import describe_gemma3, describe_gemma4
from kakeya_fleet.engine.models.gguf.header import GgufHeader
from kakeya_fleet.engine.models.gguf.llama import describe_llama
from kakeya_fleet.engine.models.gguf.qwen import describe_qwen2, describe_qwen3, describe_qwen3_5

FAMILIES = {
    "llama": describe_llama,
    "qwen2": describe_qwen2,
    "qwen3": describe_qwen3,
    "qwen35": describe_qwen3_5,
    "gemma3": describe_gemma3,
    "gemma4": describe_gemma4,
}
"""By llama.cpp's names. Mistral's files say `llama`."""
NAMED = 8
"""Tensors that an error names."""


def describe(header: GgufHeader) -> Described:
    """The config and the tensors' places of the model in the file with `header`.

    Raises `ArchitectureUnsupported` for another architecture and for mixtures of experts,
    `GgufInvalid` for entries that are missing or impossible and for tensors of none of its parts.
    """
    entries = Entries(header)
    name = entries.architecture
    if entries.whole("split.count", 1, least=0) > 1:
        raise GgufInvalid(
            f"{header.path} is one of several parts; join them with llama-gguf-split --merge",
            path=str(header.path),
        )
    family = FAMILIES.get(name)
    if family is None:
        raise ArchitectureUnsupported(
            f"{header.path} is of the architecture {name[:64]!r}, and {', '.join(FAMILIES)} are"
            " read",
            architecture=name[:64],
            supported=",".join(FAMILIES),
        )
    if entries.whole(".expert_count", 0, least=0):
        raise ArchitectureUnsupported(
            f"{header.path} is a mixture of experts, and none is served", architecture=name
        )
    described = family(entries)
    unknown = sorted(header.tensors.keys() - described.targets.keys() - described.in_config)
    if unknown:
        more = f" and {len(unknown) - NAMED} more" if len(unknown) > NAMED else ""
        raise GgufInvalid(
            f"{header.path} has tensors that no {name} has: {', '.join(unknown[:NAMED])}{more}",
            path=str(header.path),
            unexpected=",".join(unknown[:NAMED]),
        )
    return described
