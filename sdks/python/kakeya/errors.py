"""Errors of the client.

KakeyaError
├── RpcError                    a node refused the call, and said why
│   ├── NotFound
│   │   ├── SessionNotFound       unknown, closed or evicted
│   │   ├── ModelNotFound         no live node serves the model
│   │   └── NodeNotFound          no such node in the fleet
│   ├── InvalidArgument
│   │   ├── BadRequest            a parameter outside its range
│   │   ├── BadPageToken          not a token of this node's pages
│   │   ├── EmptyAppend           an append without tokens
│   │   └── TokenOutOfVocabulary  an id is not below the vocabulary size
│   ├── FailedPrecondition
│   │   ├── EmptyHistory          a generation without a history
│   │   ├── HistoryLengthMismatch the history has another length
│   │   ├── InvariantViolated     a broken promise; the session has ended
│   │   ├── ModelServedElsewhere  another node serves the model, see `address`
│   │   ├── NoPlacement           a node serves the model, none can take it
│   │   ├── NoArchive             no live node keeps what the session evicts
│   │   ├── RestorerMismatch      the learned map is another on the archive's node
│   │   ├── TrainedForAnother     a learned map or drafter of another verifier
│   │   ├── FleetMismatch         the node belongs to another fleet
│   │   └── ProtocolSkew          no common version of the protocol
│   ├── OutOfRange
│   │   └── ContextExceeded       longer than the model's positions or the cache
│   ├── ResourceExhausted
│   │   ├── OutOfKvMemory         sessions use all memory they may take
│   │   ├── ArchiveFull           archives have no room for what is evicted
│   │   ├── TooManyStreams        the node serves no more streams
│   │   └── WatcherTooSlow        a watch fell behind the fleet's changes
│   ├── PermissionDenied
│   │   └── NotLoopback           allowed from the node's own machine only
│   ├── Unimplemented
│   │   └── KvStrategyUnsupported the node cannot keep keys and values that way
│   └── Unavailable
│       ├── Draining              the node is leaving
│       ├── ModelLoading          the model is still being loaded there
│       ├── GroupLost             a rank of the model's group died, and the session with it
│       └── RestorerLost          what was evicted is lost; the session tries again
├── TransportError              the call never got an answer
│   ├── NodeUnreachable           no node answers at the address
│   ├── DeadlineExceeded          no answer in time
│   ├── Cancelled                 the node or the network took the call back
│   └── UnexpectedError           an answer outside the contract
├── UsageError                  the client was used wrongly; nothing was sent
│   ├── ClientClosed              the client is closed
│   ├── SessionBusy               the session's generation still runs
│   ├── StreamConsumed            a stream was iterated a second time
│   └── KeyExposed                an API key without TLS, beyond this machine
└── TextError                   tokenizers, `kakeya.text`
    ├── TextExtraMissing          the extra kakeya[text] is not installed
    ├── TokenizerNotFound         no tokenizer there
    ├── TokenizerMismatch         a tokenizer that is not the announced one
    ├── BadMessage                no message of a chat, see `field`
    │   └── UnsupportedContent      images, sound, files: models here read text
    └── ChatTemplateError         the model's chat template failed
        └── ChatTemplateNotFound    the model has none

Each has a `reason` in UPPER_SNAKE_CASE, a `code` (a canonical status such as
"NOT_FOUND"), `metadata` for programs, `attempts` (how often the call was sent),
and reads as the problem and how to mend it: "PROBLEM; MEND" where the node told the
two apart as `problem` and `mend`. `field` names the value at fault. A reason that
this client does not know keeps its name and takes the class of its status code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class KakeyaError(Exception):
    """Base of all errors of this package."""

    default_reason: ClassVar[str] = "KAKEYA_ERROR"
    default_code: ClassVar[str] = "UNKNOWN"

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        code: str = "",
        metadata: Mapping[str, str] | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason or self.default_reason
        self.code = code or self.default_code
        self.metadata = dict(metadata or {})
        self.retry_after_seconds = retry_after_seconds
        self.attempts = 1

    def __str__(self) -> str:
        return f"{self.problem.rstrip('.')}; {self.mend}" if self.mend else self.problem

    @property
    def problem(self) -> str:
        """What is wrong, without `mend`."""
        return str(self.args[0])

    @property
    def mend(self) -> str:
        """How to mend it, a few words; empty where `problem` says so itself."""
        return self.metadata.get("mend", "")

    @property
    def field(self) -> str:
        """The parameter, or the part of a chat, that is at fault; empty for none."""
        return self.metadata.get("field", "")


class RpcError(KakeyaError):
    """A node refused the call, and said why."""

    default_reason = "RPC_ERROR"


class NotFound(RpcError):
    """What the call names does not exist there."""

    default_reason = "NOT_FOUND"
    default_code = "NOT_FOUND"


class SessionNotFound(NotFound):
    """The session is unknown, closed or evicted."""

    default_reason = "SESSION_NOT_FOUND"


class ModelNotFound(NotFound):
    """No live node serves the model."""

    default_reason = "MODEL_NOT_FOUND"


class NodeNotFound(NotFound):
    """No such node in the fleet."""

    default_reason = "NODE_NOT_FOUND"


class InvalidArgument(RpcError):
    """A value of the request is not allowed, whatever the state of the node."""

    default_reason = "INVALID_ARGUMENT"
    default_code = "INVALID_ARGUMENT"


class BadRequest(InvalidArgument):
    """A parameter is outside its range."""

    default_reason = "BAD_REQUEST"


class BadPageToken(InvalidArgument):
    """The token is not one of this node's pages."""

    default_reason = "BAD_PAGE_TOKEN"


class EmptyAppend(InvalidArgument):
    """An append without tokens."""

    default_reason = "EMPTY_APPEND"


class TokenOutOfVocabulary(InvalidArgument):
    """An id is not below the vocabulary size; nothing was appended."""

    default_reason = "TOKEN_OUT_OF_VOCABULARY"


class FailedPrecondition(RpcError):
    """The state of the session or the node does not allow the call."""

    default_reason = "FAILED_PRECONDITION"
    default_code = "FAILED_PRECONDITION"


class EmptyHistory(FailedPrecondition):
    """A generation without a history."""

    default_reason = "EMPTY_HISTORY"


class HistoryLengthMismatch(FailedPrecondition):
    """The history has another length than the caller assumes."""

    default_reason = "HISTORY_LENGTH_MISMATCH"


class InvariantViolated(FailedPrecondition):
    """A broken promise of the node. The session has ended; metadata names the invariant."""

    default_reason = "INVARIANT_VIOLATED"


class ModelServedElsewhere(FailedPrecondition):
    """Another node serves the model; the client follows once by itself."""

    default_reason = "MODEL_SERVED_ELSEWHERE"

    @property
    def address(self) -> str:
        """Where the model is served, host:port; empty when the node did not say."""
        return self.metadata.get("address", "")


class NoPlacement(FailedPrecondition):
    """A node serves the model, but none can take the session as asked for."""

    default_reason = "NO_PLACEMENT"


class NoArchive(FailedPrecondition):
    """No live node has an archive that can take the session."""

    default_reason = "NO_ARCHIVE"


class RestorerMismatch(FailedPrecondition):
    """The archive's node has another learned map than the session; metadata has both digests."""

    default_reason = "RESTORER_MISMATCH"


class TrainedForAnother(FailedPrecondition):
    """A learned map or a drafter belongs to another verifier; metadata names both."""

    default_reason = "TRAINED_FOR_ANOTHER"


class FleetMismatch(FailedPrecondition):
    """The node belongs to another fleet."""

    default_reason = "FLEET_MISMATCH"


class ProtocolSkew(FailedPrecondition):
    """The two share no version of the protocol."""

    default_reason = "PROTOCOL_SKEW"


class OutOfRange(RpcError):
    """A value is past what exists."""

    default_reason = "OUT_OF_RANGE"
    default_code = "OUT_OF_RANGE"


class ContextExceeded(OutOfRange):
    """The history would be longer than the model's positions or the cache."""

    default_reason = "CONTEXT_EXCEEDED"


class ResourceExhausted(RpcError):
    """A limit of the node is reached; see `retry_after_seconds`."""

    default_reason = "RESOURCE_EXHAUSTED"
    default_code = "RESOURCE_EXHAUSTED"


class OutOfKvMemory(ResourceExhausted):
    """Sessions use all the memory that they may take; see `retry_after_seconds`."""

    default_reason = "OUT_OF_KV_MEMORY"


class ArchiveFull(ResourceExhausted):
    """Archives have no room for what the session evicts; see `retry_after_seconds`."""

    default_reason = "ARCHIVE_FULL"


class TooManyStreams(ResourceExhausted):
    """The node serves no more streams."""

    default_reason = "TOO_MANY_STREAMS"


class WatcherTooSlow(ResourceExhausted):
    """A watch fell behind the fleet's changes."""

    default_reason = "WATCHER_TOO_SLOW"


class PermissionDenied(RpcError):
    """The caller may not do that."""

    default_reason = "PERMISSION_DENIED"
    default_code = "PERMISSION_DENIED"


class NotLoopback(PermissionDenied):
    """Allowed from the node's own machine only."""

    default_reason = "NOT_LOOPBACK"


class Unimplemented(RpcError):
    """The node's version does not serve that."""

    default_reason = "UNIMPLEMENTED"
    default_code = "UNIMPLEMENTED"


class KvStrategyUnsupported(Unimplemented):
    """The model, or the node's version, cannot keep keys and values that way."""

    default_reason = "KV_STRATEGY_UNSUPPORTED"


class Unavailable(RpcError):
    """The node cannot serve now."""

    default_reason = "UNAVAILABLE"
    default_code = "UNAVAILABLE"


class Draining(Unavailable):
    """The node is leaving."""

    default_reason = "DRAINING"


class ModelLoading(Unavailable):
    """The model is still being loaded there; see `retry_after_seconds`."""

    default_reason = "MODEL_LOADING"


class GroupLost(Unavailable):
    """A rank of the group that served the model died, and the session ended with it.

    Its tokens open it again: on another node at once, here once the group is back.
    """

    default_reason = "GROUP_LOST"


class RestorerLost(Unavailable):
    """What the session evicted is lost, and no archive was found in time to make it anew.

    The session lives: its next operation tries again.
    """

    default_reason = "RESTORER_LOST"


class TransportError(KakeyaError):
    """The call never got an answer of the contract."""

    default_reason = "TRANSPORT_ERROR"


class NodeUnreachable(TransportError):
    """No node answers at the address; `metadata["detail"]` has the network's words."""

    default_reason = "NODE_UNREACHABLE"
    default_code = "UNAVAILABLE"


class DeadlineExceeded(TransportError):
    """No answer in time; the call is cancelled on the node too."""

    default_reason = "DEADLINE_EXCEEDED"
    default_code = "DEADLINE_EXCEEDED"


class Cancelled(TransportError):
    """The node or the network took the call back."""

    default_reason = "CANCELLED"
    default_code = "CANCELLED"


class UnexpectedError(TransportError):
    """An answer outside the contract: a fault of the node or of this client."""

    default_reason = "UNEXPECTED_ERROR"
    default_code = "INTERNAL"


class UsageError(KakeyaError):
    """The client was used wrongly; nothing was sent."""

    default_reason = "USAGE_ERROR"
    default_code = "FAILED_PRECONDITION"


class ClientClosed(UsageError):
    """The client is closed."""

    default_reason = "CLIENT_CLOSED"


class SessionBusy(UsageError):
    """The session's generation still runs."""

    default_reason = "SESSION_BUSY"


class StreamConsumed(UsageError):
    """A generation or a watch was iterated a second time."""

    default_reason = "STREAM_CONSUMED"


class KeyExposed(UsageError):
    """An API key would travel in plain text beyond this machine: give `tls`."""

    default_reason = "KEY_EXPOSED"


class TextError(KakeyaError):
    """Tokenizers cannot be used."""

    default_reason = "TEXT_ERROR"
    default_code = "FAILED_PRECONDITION"


class TextExtraMissing(TextError):
    """The extra kakeya[text] is not installed."""

    default_reason = "TEXT_EXTRA_MISSING"


class TokenizerNotFound(TextError):
    """No tokenizer at that folder or hub id."""

    default_reason = "TOKENIZER_NOT_FOUND"
    default_code = "NOT_FOUND"


class TokenizerMismatch(TextError):
    """What a node sent is not the tokenizer that it announced; metadata tells what differs."""

    default_reason = "TOKENIZER_MISMATCH"
    default_code = "DATA_LOSS"


class BadMessage(TextError):
    """What is no message of a chat; `field` names it, such as "messages[2].role"."""

    default_reason = "BAD_MESSAGE"
    default_code = "INVALID_ARGUMENT"


class UnsupportedContent(BadMessage):
    """A message says what models here cannot be told: an image, sound, a file."""

    default_reason = "UNSUPPORTED_CONTENT"


class ChatTemplateError(TextError):
    """The model's chat template failed; `metadata["detail"]` has its own words."""

    default_reason = "CHAT_TEMPLATE_ERROR"
    default_code = "INVALID_ARGUMENT"


class ChatTemplateNotFound(ChatTemplateError):
    """The model has no chat template."""

    default_reason = "CHAT_TEMPLATE_NOT_FOUND"
    default_code = "NOT_FOUND"
