"""Errors of the engine.

EngineError
├── ModelUnusable           a checkpoint cannot be served
│   ├── ModelNotFound         no such folder, hub id or shipped name
│   ├── ArchitectureUnsupported  loaded from the hub's format, but not served here
│   ├── WeightsMismatch       missing, unexpected or truncated weights
│   ├── GgufInvalid           a GGUF file that breaks the format, its bounds, or off
│   ├── WeightFormatUnsupported  quantized in a way that nothing here computes with
│   ├── ModelCacheUnwritable  no room, or no right, to keep a converted or pulled model
│   ├── DeviceUnavailable     asked for a device that is not there, or cannot compute it
│   ├── TrainedForAnother     made for another verifier, or another shift, than it is used with
│   └── OutOfMemory           the machine cannot hold it
├── ModelInUse              the files are pulled, loaded or served at this moment
├── ModelNotKept            nothing of that name was pulled here
├── SessionNotFound         unknown, closed or evicted
├── TokenOutOfVocabulary    an id is not below the vocabulary size
├── EmptyAppend             an append without tokens
├── EmptyHistory            a generation without a history
├── HistoryLengthMismatch   the caller's idea of the history is another
├── ContextExceeded         longer than the model's positions or the cache
├── OutOfKvMemory           the byte budget of sessions is used up
├── KvStrategyUnsupported   the model or version cannot keep K/V that way
├── BadParameters           a parameter outside its range
├── GrammarRefused          a grammar that cannot be compiled, costs too much or allows nothing
├── RestorerLost            what was evicted is gone; it is made anew from the history
├── RestorerRefused         evicted numbers that cannot be kept: not finite, of a wrong shape, or
│                           attended to with other bits by this machine's threads
├── GroupLost               the ranks that computed the verifier together are no more
├── InvariantViolated       a broken promise; the session has ended
└── DraftFailed             a proposer's fault, see `DraftFaultKind`

Each has a `reason` in UPPER_SNAKE_CASE, which is the ErrorInfo reason on the
wire, and `metadata` for programs.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar


class EngineError(Exception):
    """Base of all errors of this package."""

    reason: ClassVar[str] = "ENGINE_ERROR"

    def __init__(self, message: str, **metadata: str) -> None:
        super().__init__(message)
        self.metadata = metadata


class ModelUnusable(EngineError):
    """A checkpoint cannot be served."""

    reason = "MODEL_UNUSABLE"


class ModelNotFound(ModelUnusable):
    """No such folder, hub id or shipped name."""

    reason = "MODEL_NOT_FOUND"


class ArchitectureUnsupported(ModelUnusable):
    """The checkpoint's architecture cannot be served by this back end or cache."""

    reason = "ARCHITECTURE_UNSUPPORTED"


class WeightsMismatch(ModelUnusable):
    """Weights are missing, unexpected, truncated or of a wrong shape."""

    reason = "WEIGHTS_MISMATCH"


class GgufInvalid(ModelUnusable):
    """A GGUF file breaks the format or its bounds, or breaks off."""

    reason = "GGUF_INVALID"


class WeightFormatUnsupported(ModelUnusable):
    """Weights are quantized in a way that nothing here computes with."""

    reason = "WEIGHT_FORMAT_UNSUPPORTED"


class ModelCacheUnwritable(ModelUnusable):
    """A converted or pulled model cannot be kept: no room on the disk, or no right to write."""

    reason = "MODEL_CACHE_UNWRITABLE"


class DeviceUnavailable(ModelUnusable):
    """The device that was asked for is not there, or this cannot be computed there."""

    reason = "DEVICE_UNAVAILABLE"


class TrainedForAnother(ModelUnusable):
    """A drafter or restorer belongs to another verifier; metadata names both."""

    reason = "TRAINED_FOR_ANOTHER"


class OutOfMemory(ModelUnusable):
    """The machine cannot hold the model."""

    reason = "OUT_OF_MEMORY"


class ModelInUse(EngineError):
    """A model's files are pulled, removed, loaded or served at this moment."""

    reason = "MODEL_IN_USE"


class ModelNotKept(EngineError):
    """No model of that name was brought to this machine by a pull."""

    reason = "MODEL_NOT_KEPT"


class SessionNotFound(EngineError):
    """The session is unknown, closed or evicted."""

    reason = "SESSION_NOT_FOUND"


class TokenOutOfVocabulary(EngineError):
    """An id is not below the vocabulary size."""

    reason = "TOKEN_OUT_OF_VOCABULARY"


class EmptyAppend(EngineError):
    """An append without tokens."""

    reason = "EMPTY_APPEND"


class EmptyHistory(EngineError):
    """A generation without a history."""

    reason = "EMPTY_HISTORY"


class HistoryLengthMismatch(EngineError):
    """The caller's idea of the history's length is another."""

    reason = "HISTORY_LENGTH_MISMATCH"


class ContextExceeded(EngineError):
    """The history would be longer than the model's positions or the cache."""

    reason = "CONTEXT_EXCEEDED"


class OutOfKvMemory(EngineError):
    """The byte budget of sessions is used up; metadata has needed and free bytes."""

    reason = "OUT_OF_KV_MEMORY"


class KvStrategyUnsupported(EngineError):
    """The model, or this version, cannot keep keys and values that way."""

    reason = "KV_STRATEGY_UNSUPPORTED"


class BadParameters(EngineError):
    """A parameter is outside its range."""

    reason = "BAD_REQUEST"


class GrammarRefused(EngineError):
    """A grammar cannot be compiled, costs more than its bounds, or allows nothing any more."""

    reason = "GRAMMAR_REFUSED"


class RestorerLost(EngineError):
    """What a session has evicted is gone with its store. The history makes it anew."""

    reason = "RESTORER_LOST"


class RestorerRefused(EngineError):
    """Evicted numbers that are not finite, of a wrong shape, or not attended to exactly here.

    Nothing was kept.
    """

    reason = "RESTORER_REFUSED"


class GroupLost(EngineError):
    """A rank of the group that served the verifier is lost, and the session with it.

    Its tokens make it again, on another node at once, here once the group is back.
    """

    reason = "GROUP_LOST"


class InvariantViolated(EngineError):
    """A broken promise. The session has ended; metadata names the invariant."""

    reason = "INVARIANT_VIOLATED"


class DraftFaultKind(StrEnum):
    """What a proposer did wrong."""

    UNREACHABLE = "unreachable"
    DEADLINE = "deadline"
    WRONG_LENGTH = "wrong_length"
    OUT_OF_VOCABULARY = "out_of_vocabulary"
    STALE = "stale"
    FEATURES = "features"
    """Context vectors were lost, late, refused, or of another verifier."""


class DraftFailed(EngineError):
    """A proposer's fault; costs a block of drafting, never a token."""

    reason = "DRAFT_FAILED"

    def __init__(self, kind: DraftFaultKind, message: str) -> None:
        super().__init__(message, kind=kind.value)
        self.kind = kind
