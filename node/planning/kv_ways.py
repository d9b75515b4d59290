"""Every way in which a session of a model can keep its keys and values, in bytes.

The bytes are those by which sessions are admitted: of a cache's layout, and of an archive's
store.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from kakeya.v1 import placement_pb2 as wire
from kakeya_fleet.engine.contracts.cache import CacheSpec
from kakeya_fleet.engine.contracts.kv_layout import KvLayout
from kakeya_fleet.engine.contracts.model_on_paper import ModelOnPaper
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.errors import BadParameters, KvStrategyUnsupported
from kakeya_fleet.engine.restoration.matching import evicted_shape
from kakeya_fleet.fleet.placement.archive_shares import needed_bytes
from kakeya_fleet.fleet.placement.fit import Way
from kakeya_fleet.fleet.placement.longest import longest_history
from kakeya_fleet.fleet.placement.plan import KvStrategy
from kakeya_fleet.node.planning.cache_specs import Keeping, cache_spec
from kakeya_fleet.node.planning.kv_quality import CODECS, QUALITIES, packing_of

PACKED = (KvStrategy.FULL, KvStrategy.RESTORED)
ORDER = (KvStrategy.FULL, KvStrategy.RESTORED, KvStrategy.SINK_WINDOW)
"""By what is asked of others, then by what is forgotten."""
SHOWN = (wire.KV_QUALITY_LOSSLESS, wire.KV_QUALITY_HIGH, wire.KV_QUALITY_ECONOMY)
BYTE_BITS = 8


@dataclass(frozen=True, slots=True)
class Question:
    """How much a history of `tokens` takes, and how long one is that takes `room_bytes`."""

    tokens: int
    room_bytes: int
    sink_tokens: int
    window_tokens: int


def ways(model: ModelOnPaper, question: Question) -> tuple[Way, ...]:
    """All ways, the most exact one that asks nothing of others first."""
    return tuple(
        _way(model, question, strategy, quality)
        for strategy in ORDER
        for quality in (SHOWN if strategy in PACKED else SHOWN[:1])
    )


def spec_of(
    model: ModelOnPaper,
    strategy: KvStrategy,
    codec: str,
    question: Question,
    tokens: int,
) -> CacheSpec:
    """The cache of a session that is opened for `tokens`, as a node makes it."""
    restorer = None
    if strategy is KvStrategy.RESTORED:
        restorer = RestorerSpec(RestorerKind.ARCHIVE, codec=codec)
    keeping = Keeping(
        strategy,
        question.sink_tokens,
        question.window_tokens,
        max_history_tokens=tokens,
        codec=codec if strategy is KvStrategy.FULL else "",
        restorer=restorer,
    )
    return cache_spec(keeping, model.layout.context_length)


def _way(
    model: ModelOnPaper,
    question: Question,
    strategy: KvStrategy,
    quality: wire.KvQuality.ValueType,
) -> Way:
    codec = CODECS[quality]
    name = wire.KvQuality.Name(quality).removeprefix("KV_QUALITY_").lower()
    spec = spec_of(model, strategy, codec, question, question.tokens)
    try:
        resident = model.layout.bytes_needed(spec)
    except (BadParameters, KvStrategyUnsupported) as error:
        return Way(strategy, name, problem=str(error))
    asked = QUALITIES[quality]
    packing = packing_of(codec, asked) if asked is not None else None
    return Way(
        strategy,
        name,
        resident_bytes=resident,
        archive_bytes=_archive_bytes(model, spec, question.tokens),
        longest_tokens=_longest(model, question, strategy, codec),
        bits=_bits(model, spec),
        divergence_nats=packing.divergence_nats if packing is not None else 0.0,
    )


def _longest(model: ModelOnPaper, question: Question, strategy: KvStrategy, codec: str) -> int:
    layout = model.layout

    @cache
    def bytes_of(tokens: int) -> int:
        return layout.bytes_needed(spec_of(model, strategy, codec, question, tokens))

    return longest_history(bytes_of, question.room_bytes, layout.context_length, _edges(layout))


def _edges(layout: KvLayout) -> list[int]:
    """Lengths above which a layer keeps its sliding window alone."""
    windows = (group.shape.sliding_window for group in layout.groups)
    return [window for window in windows if window is not None]


def _archive_bytes(model: ModelOnPaper, spec: CacheSpec, tokens: int) -> int:
    """Of whole segments of what a history has handed over to another machine; 0 for none."""
    if spec.restorer is None:
        return 0
    shape = evicted_shape(model.layout, spec, model.dtype)
    return needed_bytes(spec.handed_over_end(tokens), shape.bytes_per_position)


def _bits(model: ModelOnPaper, spec: CacheSpec) -> float:
    """Of a number behind the window, scales included."""
    plain = BYTE_BITS * model.layout.item_bytes
    if not spec.packed_by:
        return float(plain)
    packed = evicted_shape(model.layout, spec, model.dtype)
    unpacked = replace(packed, codec="")
    return plain * packed.bytes_per_position / unpacked.bytes_per_position
