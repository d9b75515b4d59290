"""Errors of the client, made from proto/kakeya/v1/error_reason.proto by `make stubs`.

KakeyaError
├── RpcError
│   ├── NotFound
│   │   ├── SessionNotFound
│   │   ├── ModelNotFound
│   │   ├── NodeNotFound
│   │   └── KeyNotFound
│   ├── InvalidArgument
│   │   ├── EmptyAppend
│   │   ├── TokenOutOfVocabulary
│   │   ├── BadRequest
│   │   ├── GrammarRefused
│   │   └── BadPageToken
│   ├── FailedPrecondition
│   │   ├── HistoryLengthMismatch
│   │   ├── EmptyHistory
│   │   ├── InvariantViolated
│   │   ├── ModelServedElsewhere
│   │   ├── TrainedForAnother
│   │   ├── NoPlacement
│   │   ├── NoArchive
│   │   ├── RestorerMismatch
│   │   ├── FleetMismatch
│   │   ├── ProtocolSkew
│   │   ├── NoAuthority
│   │   ├── NotAKeeper
│   │   ├── LastKeeper
│   │   ├── StatementRejected
│   │   └── KeyAmbiguous
│   ├── OutOfRange
│   │   └── ContextExceeded
│   ├── ResourceExhausted
│   │   ├── OutOfKvMemory
│   │   ├── WatcherTooSlow
│   │   ├── TooManyStreams
│   │   ├── ArchiveFull
│   │   ├── KeyLimitReached
│   │   ├── KeyTokensSpent
│   │   ├── TooManyKeys
│   │   ├── TooManyCalls
│   │   ├── TooManySessions
│   │   ├── TooBusy
│   │   └── AnswerTooLarge
│   ├── PermissionDenied
│   │   ├── NotLoopback
│   │   └── NotPermitted
│   ├── Unauthenticated
│   │   ├── KeyMissing
│   │   ├── KeyUnknown
│   │   ├── KeyRevoked
│   │   └── KeyExpired
│   ├── Unimplemented
│   │   └── KvStrategyUnsupported
│   └── Unavailable
│       ├── Draining
│       ├── GroupLost
│       ├── WorkerFault
│       ├── ModelLoading
│       └── RestorerLost
├── TransportError
│   ├── NodeUnreachable
│   ├── DeadlineExceeded
│   ├── Cancelled
│   └── UnexpectedError
├── UsageError
│   ├── SessionBusy
│   ├── ClientClosed
│   ├── StreamConsumed
│   └── KeyExposed
└── TextError
    ├── TokenizerNotFound
    ├── TokenizerMismatch
    ├── TextExtraMissing
    ├── BadMessage
    │   └── UnsupportedContent
    └── ChatTemplateError
        └── ChatTemplateNotFound

What each of them has is told in `kakeya.error_base`.
"""

from __future__ import annotations

from kakeya.error_base import KakeyaError

__all__ = [
    "AnswerTooLarge",
    "ArchiveFull",
    "BadMessage",
    "BadPageToken",
    "BadRequest",
    "Cancelled",
    "ChatTemplateError",
    "ChatTemplateNotFound",
    "ClientClosed",
    "ContextExceeded",
    "DeadlineExceeded",
    "Draining",
    "EmptyAppend",
    "EmptyHistory",
    "FailedPrecondition",
    "FleetMismatch",
    "GrammarRefused",
    "GroupLost",
    "HistoryLengthMismatch",
    "InvalidArgument",
    "InvariantViolated",
    "KakeyaError",
    "KeyAmbiguous",
    "KeyExpired",
    "KeyExposed",
    "KeyLimitReached",
    "KeyMissing",
    "KeyNotFound",
    "KeyRevoked",
    "KeyTokensSpent",
    "KeyUnknown",
    "KvStrategyUnsupported",
    "LastKeeper",
    "ModelLoading",
    "ModelNotFound",
    "ModelServedElsewhere",
    "NoArchive",
    "NoAuthority",
    "NoPlacement",
    "NodeNotFound",
    "NodeUnreachable",
    "NotAKeeper",
    "NotFound",
    "NotLoopback",
    "NotPermitted",
    "OutOfKvMemory",
    "OutOfRange",
    "PermissionDenied",
    "ProtocolSkew",
    "ResourceExhausted",
    "RestorerLost",
    "RestorerMismatch",
    "RpcError",
    "SessionBusy",
    "SessionNotFound",
    "StatementRejected",
    "StreamConsumed",
    "TextError",
    "TextExtraMissing",
    "TokenOutOfVocabulary",
    "TokenizerMismatch",
    "TokenizerNotFound",
    "TooBusy",
    "TooManyCalls",
    "TooManyKeys",
    "TooManySessions",
    "TooManyStreams",
    "TrainedForAnother",
    "TransportError",
    "Unauthenticated",
    "Unavailable",
    "UnexpectedError",
    "Unimplemented",
    "UnsupportedContent",
    "UsageError",
    "WatcherTooSlow",
    "WorkerFault",
]


class RpcError(KakeyaError):
    """A node refused the call, and said why."""

    default_reason = "RPC_ERROR"


class NotFound(RpcError):
    """What the call names does not exist there."""

    default_reason = "NOT_FOUND"
    default_code = "NOT_FOUND"


class SessionNotFound(NotFound):
    """The session is unknown, closed or evicted.

    It is evicted when idle past its time to live (`session_ttl_seconds`, 30 minutes), or when its
    place is needed, or its memory and it cannot rest; the message says which.
    """

    default_reason = "SESSION_NOT_FOUND"


class ModelNotFound(NotFound):
    """No live node serves the model, or no such folder, hub id or shipped name exists."""

    default_reason = "MODEL_NOT_FOUND"


class NodeNotFound(NotFound):
    """No node of that name or id is known to the asked node."""

    default_reason = "NODE_NOT_FOUND"


class KeyNotFound(NotFound):
    """No key of the fleet has that name or id."""

    default_reason = "KEY_NOT_FOUND"


class InvalidArgument(RpcError):
    """A value of the request is not allowed, whatever the state of the node."""

    default_reason = "INVALID_ARGUMENT"
    default_code = "INVALID_ARGUMENT"


class EmptyAppend(InvalidArgument):
    """An append without tokens."""

    default_reason = "EMPTY_APPEND"


class TokenOutOfVocabulary(InvalidArgument):
    """An id is not below the vocabulary size; nothing was appended.

    Most often the ids come from another model's tokenizer.
    """

    default_reason = "TOKEN_OUT_OF_VOCABULARY"


class BadRequest(InvalidArgument):
    """A parameter is outside its range, or two exclude each other.

    `metadata["field"]` names it where one is at fault.
    """

    default_reason = "BAD_REQUEST"


class GrammarRefused(InvalidArgument):
    """A grammar cannot be compiled, costs too much, or allows nothing any more.

    The message says which; the last is so where no token of the model fits, or where the grammar
    does not allow what a generation has said already, which goes on from a lost node. Tokens that
    came before it stay in the history.
    """

    default_reason = "GRAMMAR_REFUSED"


class BadPageToken(InvalidArgument):
    """The token is not one of this node's pages."""

    default_reason = "BAD_PAGE_TOKEN"


class FailedPrecondition(RpcError):
    """The state of the session or the node does not allow the call."""

    default_reason = "FAILED_PRECONDITION"
    default_code = "FAILED_PRECONDITION"


class HistoryLengthMismatch(FailedPrecondition):
    """The history has another length than the caller assumes.

    Nothing was appended, forked or rewound.
    """

    default_reason = "HISTORY_LENGTH_MISMATCH"


class EmptyHistory(FailedPrecondition):
    """A generation of a session without a history."""

    default_reason = "EMPTY_HISTORY"


class InvariantViolated(FailedPrecondition):
    """A broken promise of the node.

    The session has ended, so that no wrong token leaves it; `metadata` names the invariant.
    """

    default_reason = "INVARIANT_VIOLATED"


class ModelServedElsewhere(FailedPrecondition):
    """Another live node serves the model; `metadata["address"]` is its address."""

    default_reason = "MODEL_SERVED_ELSEWHERE"

    @property
    def address(self) -> str:
        """Where the model is served, host:port; empty when the node did not say."""
        return self.metadata.get("address", "")

    @property
    def applications_address(self) -> str:
        """The same for clients with a key, in a fleet with an authority; empty in others."""
        return self.metadata.get("applications_address", "")

    @property
    def node_id(self) -> str:
        """The node that serves it; empty when the node that was asked did not say."""
        return self.metadata.get("node_id", "")


class TrainedForAnother(FailedPrecondition):
    """A learned map or a drafter belongs to another verifier; `metadata` names both."""

    default_reason = "TRAINED_FOR_ANOTHER"


class NoPlacement(FailedPrecondition):
    """A node serves the model, but none can take the session as asked for.

    The named proposer has another tokenizer, no free memory, or is shut out after faults.
    """

    default_reason = "NO_PLACEMENT"


class NoArchive(FailedPrecondition):
    """No live node has an archive with room for a `restored` session."""

    default_reason = "NO_ARCHIVE"


class RestorerMismatch(FailedPrecondition):
    """The archive's node has another learned map than the session; `metadata` has both digests."""

    default_reason = "RESTORER_MISMATCH"


class FleetMismatch(FailedPrecondition):
    """The node belongs to another fleet.

    Of a `--peer`, the node says so at its terminal once a minute, in its events and in `fleet
    status`; so of one that nobody answers (UNREACHABLE) and of one that is no node, such as a port
    of HTTP (NOT_A_NODE).
    """

    default_reason = "FLEET_MISMATCH"


class ProtocolSkew(FailedPrecondition):
    """The two share no version of the protocol."""

    default_reason = "PROTOCOL_SKEW"


class NoAuthority(FailedPrecondition):
    """The fleet has no authority.

    Whoever is on its network is in it, and nobody is invited or put out.
    """

    default_reason = "NO_AUTHORITY"


class NotAKeeper(FailedPrecondition):
    """Only a keeper has the key of an authority, with which machines are let in and put out."""

    default_reason = "NOT_A_KEEPER"


class LastKeeper(FailedPrecondition):
    """The fleet would have no keeper left.

    Nobody could be let in, nor stay for longer than a week.
    """

    default_reason = "LAST_KEEPER"


class StatementRejected(FailedPrecondition):
    """What was said of whom the fleet trusts is too much, or has no first keeper."""

    default_reason = "STATEMENT_REJECTED"


class KeyAmbiguous(FailedPrecondition):
    """A key of that name is in force, or several have the name that was given to revoke one."""

    default_reason = "KEY_AMBIGUOUS"


class OutOfRange(RpcError):
    """A value is past what exists."""

    default_reason = "OUT_OF_RANGE"
    default_code = "OUT_OF_RANGE"


class ContextExceeded(OutOfRange):
    """The history would be longer than the model's positions, or than a `full` session may be."""

    default_reason = "CONTEXT_EXCEEDED"


class ResourceExhausted(RpcError):
    """A limit of the node is reached."""

    default_reason = "RESOURCE_EXHAUSTED"
    default_code = "RESOURCE_EXHAUSTED"


class OutOfKvMemory(ResourceExhausted):
    """Sessions use all the memory that keys and values may take on the node.

    None of them was idle for long enough to rest, so there is no room for a new one, for a `full`
    one that lives to grow, or for one at rest to go on; the latter two stay as they are, with their
    histories.
    """

    default_reason = "OUT_OF_KV_MEMORY"


class WatcherTooSlow(ResourceExhausted):
    """A watch (`fleet top`, a dashboard, an application) fell behind and was ended."""

    default_reason = "WATCHER_TOO_SLOW"


class TooManyStreams(ResourceExhausted):
    """The node serves as many draft streams as it may."""

    default_reason = "TOO_MANY_STREAMS"


class ArchiveFull(ResourceExhausted):
    """Archives have no room for what the session evicts."""

    default_reason = "ARCHIVE_FULL"


class KeyLimitReached(ResourceExhausted):
    """The key has as many sessions or generations as it may on this node.

    `metadata["limit"]` is "sessions" or "generations".
    """

    default_reason = "KEY_LIMIT_REACHED"


class KeyTokensSpent(ResourceExhausted):
    """The key has spent its tokens of this minute on this node.

    Appended and generated ones count together. What was done stays done: the session and its
    history live.
    """

    default_reason = "KEY_TOKENS_SPENT"


class TooManyKeys(ResourceExhausted):
    """The fleet has made as many keys as it ever may: what is said of a fleet only grows."""

    default_reason = "TOO_MANY_KEYS"


class TooManyCalls(ResourceExhausted):
    """The node answers as many calls as it may, or keeps as many bytes for them.

    Or this caller has more of what is scarce than others have: `metadata["cause"]` is "full" or
    "share".
    """

    default_reason = "TOO_MANY_CALLS"


class TooManySessions(ResourceExhausted):
    """The node keeps as many sessions as it may.

    Or this caller has more of them than others have: `metadata["cause"]` is "full" or "share".
    Sessions that are idle for a minute have made way already.
    """

    default_reason = "TOO_MANY_SESSIONS"


class TooBusy(ResourceExhausted):
    """So much work waits that a generation could not begin before its deadline.

    Nothing was computed for it.
    """

    default_reason = "TOO_BUSY"


class AnswerTooLarge(ResourceExhausted):
    """The answer does not fit a message of 4 MiB, and was not asked for in parts.

    Clients of older versions ask for all of it at once.
    """

    default_reason = "ANSWER_TOO_LARGE"


class PermissionDenied(RpcError):
    """The caller may not do that."""

    default_reason = "PERMISSION_DENIED"
    default_code = "PERMISSION_DENIED"


class NotLoopback(PermissionDenied):
    """The call is allowed from the node's own machine only.

    `fleet leave` makes it there, from loopback or from another of the machine's addresses. So do
    `fleet load` and `fleet unload` in a fleet without an authority; a path of the node's disk is
    named there alone in every fleet.
    """

    default_reason = "NOT_LOOPBACK"


class NotPermitted(PermissionDenied):
    """The caller may not do this.

    It is for members of the fleet, for keepers, or for whoever owns the node.
    """

    default_reason = "NOT_PERMITTED"


class Unauthenticated(RpcError):
    """The caller did not show who it is, or nobody that the node knows."""

    default_reason = "UNAUTHENTICATED"
    default_code = "UNAUTHENTICATED"


class KeyMissing(Unauthenticated):
    """An application called a fleet with an authority, and showed no key."""

    default_reason = "KEY_MISSING"


class KeyUnknown(Unauthenticated):
    """The key is none of this fleet's.

    Or it was made a moment ago, and this node has not heard of it.
    """

    default_reason = "KEY_UNKNOWN"


class KeyRevoked(Unauthenticated):
    """The key was revoked: what it had open has ended, and nothing answers it any more."""

    default_reason = "KEY_REVOKED"


class KeyExpired(Unauthenticated):
    """The key was good until a time that is past by the node's clock."""

    default_reason = "KEY_EXPIRED"


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
    """The node is leaving the fleet and takes no new work."""

    default_reason = "DRAINING"


class GroupLost(Unavailable):
    """A rank of the group that served the model died, and the session ended with it."""

    default_reason = "GROUP_LOST"


class WorkerFault(Unavailable):
    """The thread that runs the model's steps failed by itself, before the step ran.

    The session is as it was, and the thread goes on with empty queues; the node's events and log
    have the fault.
    """

    default_reason = "WORKER_FAULT"


class ModelLoading(Unavailable):
    """The model is still being loaded there."""

    default_reason = "MODEL_LOADING"


class RestorerLost(Unavailable):
    """What the session evicted is lost, and no archive was found in time to make it anew.

    The session lives.
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
    """An answer outside the contract: a fault of the node, of a proxy between, or of the client."""

    default_reason = "UNEXPECTED_ERROR"
    default_code = "INTERNAL"


class UsageError(KakeyaError):
    """The client was used wrongly; nothing was sent."""

    default_reason = "USAGE_ERROR"
    default_code = "FAILED_PRECONDITION"


class SessionBusy(UsageError):
    """The session's generation still runs."""

    default_reason = "SESSION_BUSY"


class ClientClosed(UsageError):
    """The client was closed before the call."""

    default_reason = "CLIENT_CLOSED"


class StreamConsumed(UsageError):
    """A generation or a watch was iterated a second time."""

    default_reason = "STREAM_CONSUMED"


class KeyExposed(UsageError):
    """An API key would travel in plain text beyond this machine; nothing was sent."""

    default_reason = "KEY_EXPOSED"


class TextError(KakeyaError):
    """Tokenizers cannot be used."""

    default_reason = "TEXT_ERROR"
    default_code = "FAILED_PRECONDITION"


class TokenizerNotFound(TextError):
    """No tokenizer is there.

    The model is served without one, or the folder has no `tokenizer.json`.
    """

    default_reason = "TOKENIZER_NOT_FOUND"
    default_code = "NOT_FOUND"


class TokenizerMismatch(TextError):
    """A tokenizer is not the one that the served model announces.

    Its ids would mean something else; `metadata` tells what differs.
    """

    default_reason = "TOKENIZER_MISMATCH"
    default_code = "DATA_LOSS"


class TextExtraMissing(TextError):
    """The client is installed without tokenizers.

    It lacks the extra `kakeya[text]` in Python, the peer dependencies of `@kakeya/runtime/text` in
    TypeScript.
    """

    default_reason = "TEXT_EXTRA_MISSING"


class BadMessage(TextError):
    """What was given is no message of a chat.

    `metadata["field"]` names the part, such as `messages[2].role`.
    """

    default_reason = "BAD_MESSAGE"
    default_code = "INVALID_ARGUMENT"


class UnsupportedContent(BadMessage):
    """A message holds what models here cannot be told.

    They read text: no image, sound or file, and no call of something else than a function.
    `metadata["field"]` names it.
    """

    default_reason = "UNSUPPORTED_CONTENT"


class ChatTemplateError(TextError):
    """The model's chat template failed on the messages; `metadata["detail"]` has its words."""

    default_reason = "CHAT_TEMPLATE_ERROR"
    default_code = "INVALID_ARGUMENT"


class ChatTemplateNotFound(ChatTemplateError):
    """The model has no chat template, so a chat cannot be rendered for it."""

    default_reason = "CHAT_TEMPLATE_NOT_FOUND"
    default_code = "NOT_FOUND"
