"""Values of the engine in the headers of a group's messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import VerifierInfo
from kakeya_fleet.engine.errors import DraftFailed, EngineError, KvStrategyUnsupported
from kakeya_fleet.engine.group.fields import (
    Header,
    Json,
    MalformedMessage,
    flag,
    integer,
    section,
    text,
)

VALUE_ERROR = "VALUE_ERROR"
"""The reason of a `ValueError`, which has none of its own."""


def check_kind(spec: CacheSpec) -> None:
    """Raises `KvStrategyUnsupported` for what a group does not keep."""
    if spec.hands_over:
        raise KvStrategyUnsupported(
            "a verifier that a group of ranks serves restores and packs nothing yet: each rank has"
            " a part of the heads, a store has all; use full or sink_window, lossless, or a"
            " verifier of one host",
            kind=str(spec.kind),
        )


def spec_to_header(spec: CacheSpec) -> Header:
    """A cache's spec; raises `KvStrategyUnsupported`."""
    check_kind(spec)
    return {
        "kind": spec.kind.value,
        "capacity": spec.capacity,
        "sink": spec.sink,
        "window": spec.window,
        "grows": spec.grows,
    }


def spec_from_header(header: Header) -> CacheSpec:
    """The spec of `spec_to_header`. Raises `MalformedMessage`."""
    kind = text(header, "kind")
    if kind not in (CacheKind.CONTIGUOUS, CacheKind.SINK_WINDOW):
        raise MalformedMessage(f"{kind!r} is no kind of cache of a group")
    return CacheSpec(
        CacheKind(kind),
        capacity=integer(header, "capacity"),
        sink=integer(header, "sink"),
        window=integer(header, "window"),
        grows=flag(header, "grows"),
    )


def info_to_header(info: VerifierInfo) -> Header:
    """What a verifier is."""
    return asdict(info)


def info_from_header(header: Header) -> VerifierInfo:
    """The info of `info_to_header`. Raises `MalformedMessage`."""
    names = {field.name for field in fields(VerifierInfo)}
    if header.keys() != names:
        raise MalformedMessage("the ranks' program is of another version than the leader's")
    texts = {"model_id", "architecture", "weights_digest", "tokenizer_digest", "quantization"}
    texts |= {"dtype", "backend", "device"}
    values = {
        name: text(header, name) if name in texts else integer(header, name) for name in names
    }
    return VerifierInfo(**values)  # type: ignore[arg-type]  # each was read as its own type


def error_to_header(error: EngineError | ValueError) -> Header:
    """A refusal that changes nothing."""
    if isinstance(error, EngineError):
        return {"reason": error.reason, "message": str(error), "metadata": dict(error.metadata)}
    return {"reason": VALUE_ERROR, "message": str(error), "metadata": {}}


def error_from_header(header: Header) -> EngineError | ValueError:
    """The error of `error_to_header`, of its own class. Raises `MalformedMessage`."""
    reason, message = text(header, "reason"), text(header, "message")
    if reason == VALUE_ERROR:
        return ValueError(message)
    kind = next((kind for kind in _kinds(EngineError) if kind.reason == reason), None)
    if kind is None:
        raise MalformedMessage(f"an error of reason {reason!r} is not known")
    metadata: dict[str, Json] = dict(section(header, "metadata"))
    return kind(message, **{key: str(value) for key, value in metadata.items()})


def _kinds(base: type[EngineError]) -> Iterator[type[EngineError]]:
    """All errors that a verifier may raise, the narrowest of a reason first."""
    for kind in base.__subclasses__():
        if not issubclass(kind, DraftFailed):
            yield from _kinds(kind)
    yield base
