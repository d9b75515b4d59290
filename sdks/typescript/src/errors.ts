/**
 * Errors of the client, made from proto/kakeya/v1/error_reason.proto by `make stubs`.
 *
 * KakeyaError
 * ├── RpcError
 * │   ├── NotFound
 * │   │   ├── SessionNotFound
 * │   │   ├── ModelNotFound
 * │   │   ├── NodeNotFound
 * │   │   └── KeyNotFound
 * │   ├── InvalidArgument
 * │   │   ├── EmptyAppend
 * │   │   ├── TokenOutOfVocabulary
 * │   │   ├── BadRequest
 * │   │   ├── GrammarRefused
 * │   │   └── BadPageToken
 * │   ├── FailedPrecondition
 * │   │   ├── HistoryLengthMismatch
 * │   │   ├── EmptyHistory
 * │   │   ├── InvariantViolated
 * │   │   ├── ModelServedElsewhere
 * │   │   ├── TrainedForAnother
 * │   │   ├── NoPlacement
 * │   │   ├── NoArchive
 * │   │   ├── RestorerMismatch
 * │   │   ├── FleetMismatch
 * │   │   ├── ProtocolSkew
 * │   │   ├── NoAuthority
 * │   │   ├── NotAKeeper
 * │   │   ├── LastKeeper
 * │   │   ├── StatementRejected
 * │   │   └── KeyAmbiguous
 * │   ├── OutOfRange
 * │   │   └── ContextExceeded
 * │   ├── ResourceExhausted
 * │   │   ├── OutOfKvMemory
 * │   │   ├── WatcherTooSlow
 * │   │   ├── TooManyStreams
 * │   │   ├── ArchiveFull
 * │   │   ├── KeyLimitReached
 * │   │   ├── KeyTokensSpent
 * │   │   ├── TooManyKeys
 * │   │   ├── TooManyCalls
 * │   │   ├── TooManySessions
 * │   │   ├── TooBusy
 * │   │   └── AnswerTooLarge
 * │   ├── PermissionDenied
 * │   │   ├── NotLoopback
 * │   │   └── NotPermitted
 * │   ├── Unauthenticated
 * │   │   ├── KeyMissing
 * │   │   ├── KeyUnknown
 * │   │   ├── KeyRevoked
 * │   │   └── KeyExpired
 * │   ├── Unimplemented
 * │   │   └── KvStrategyUnsupported
 * │   └── Unavailable
 * │       ├── Draining
 * │       ├── GroupLost
 * │       ├── WorkerFault
 * │       ├── ModelLoading
 * │       └── RestorerLost
 * ├── TransportError
 * │   ├── NodeUnreachable
 * │   ├── DeadlineExceeded
 * │   ├── Cancelled
 * │   └── UnexpectedError
 * ├── UsageError
 * │   ├── SessionBusy
 * │   ├── ClientClosed
 * │   ├── StreamConsumed
 * │   └── KeyExposed
 * └── TextError
 *     ├── TokenizerNotFound
 *     ├── TokenizerMismatch
 *     ├── TextExtraMissing
 *     ├── BadMessage
 *     │   └── UnsupportedContent
 *     └── ChatTemplateError
 *         └── ChatTemplateNotFound
 *
 * What each of them has is told in error-base.ts.
 */

import { KakeyaError } from "./error-base.js";

export { type ErrorFields, KakeyaError } from "./error-base.js";

/** A node refused the call, and said why. */
export class RpcError extends KakeyaError {
  static override readonly defaultReason: string = "RPC_ERROR";
}

/** What the call names does not exist there. */
export class NotFound extends RpcError {
  static override readonly defaultReason: string = "NOT_FOUND";
  static override readonly defaultCode: string = "NOT_FOUND";
}

/**
 * The session is unknown, closed or evicted.
 *
 * It is evicted when idle past its time to live (`session_ttl_seconds`, 30 minutes), or when its
 * place is needed, or its memory and it cannot rest; the message says which.
 */
export class SessionNotFound extends NotFound {
  static override readonly defaultReason: string = "SESSION_NOT_FOUND";
}

/** No live node serves the model, or no such folder, hub id or shipped name exists. */
export class ModelNotFound extends NotFound {
  static override readonly defaultReason: string = "MODEL_NOT_FOUND";
}

/** No node of that name or id is known to the asked node. */
export class NodeNotFound extends NotFound {
  static override readonly defaultReason: string = "NODE_NOT_FOUND";
}

/** No key of the fleet has that name or id. */
export class KeyNotFound extends NotFound {
  static override readonly defaultReason: string = "KEY_NOT_FOUND";
}

/** A value of the request is not allowed, whatever the state of the node. */
export class InvalidArgument extends RpcError {
  static override readonly defaultReason: string = "INVALID_ARGUMENT";
  static override readonly defaultCode: string = "INVALID_ARGUMENT";
}

/** An append without tokens. */
export class EmptyAppend extends InvalidArgument {
  static override readonly defaultReason: string = "EMPTY_APPEND";
}

/**
 * An id is not below the vocabulary size; nothing was appended.
 *
 * Most often the ids come from another model's tokenizer.
 */
export class TokenOutOfVocabulary extends InvalidArgument {
  static override readonly defaultReason: string = "TOKEN_OUT_OF_VOCABULARY";
}

/**
 * A parameter is outside its range, or two exclude each other.
 *
 * `metadata["field"]` names it where one is at fault.
 */
export class BadRequest extends InvalidArgument {
  static override readonly defaultReason: string = "BAD_REQUEST";
}

/**
 * A grammar cannot be compiled, costs too much, or allows nothing any more.
 *
 * The message says which; the last is so where no token of the model fits, or where the grammar
 * does not allow what a generation has said already, which goes on from a lost node. Tokens that
 * came before it stay in the history.
 */
export class GrammarRefused extends InvalidArgument {
  static override readonly defaultReason: string = "GRAMMAR_REFUSED";
}

/** The token is not one of this node's pages. */
export class BadPageToken extends InvalidArgument {
  static override readonly defaultReason: string = "BAD_PAGE_TOKEN";
}

/** The state of the session or the node does not allow the call. */
export class FailedPrecondition extends RpcError {
  static override readonly defaultReason: string = "FAILED_PRECONDITION";
  static override readonly defaultCode: string = "FAILED_PRECONDITION";
}

/**
 * The history has another length than the caller assumes.
 *
 * Nothing was appended, forked or rewound.
 */
export class HistoryLengthMismatch extends FailedPrecondition {
  static override readonly defaultReason: string = "HISTORY_LENGTH_MISMATCH";
}

/** A generation of a session without a history. */
export class EmptyHistory extends FailedPrecondition {
  static override readonly defaultReason: string = "EMPTY_HISTORY";
}

/**
 * A broken promise of the node.
 *
 * The session has ended, so that no wrong token leaves it; `metadata` names the invariant.
 */
export class InvariantViolated extends FailedPrecondition {
  static override readonly defaultReason: string = "INVARIANT_VIOLATED";
}

/** Another live node serves the model; `metadata["address"]` is its address. */
export class ModelServedElsewhere extends FailedPrecondition {
  static override readonly defaultReason: string = "MODEL_SERVED_ELSEWHERE";

  /** Where the model is served, host:port; empty when the node did not say. */
  get address(): string {
    return this.metadata["address"] ?? "";
  }

  /** The same for clients with a key, in a fleet with an authority; empty in others. */
  get applicationsAddress(): string {
    return this.metadata["applications_address"] ?? "";
  }

  /** The node that serves it; empty when the node that was asked did not say. */
  get nodeId(): string {
    return this.metadata["node_id"] ?? "";
  }
}

/** A learned map or a drafter belongs to another verifier; `metadata` names both. */
export class TrainedForAnother extends FailedPrecondition {
  static override readonly defaultReason: string = "TRAINED_FOR_ANOTHER";
}

/**
 * A node serves the model, but none can take the session as asked for.
 *
 * The named proposer has another tokenizer, no free memory, or is shut out after faults.
 */
export class NoPlacement extends FailedPrecondition {
  static override readonly defaultReason: string = "NO_PLACEMENT";
}

/** No live node has an archive with room for a `restored` session. */
export class NoArchive extends FailedPrecondition {
  static override readonly defaultReason: string = "NO_ARCHIVE";
}

/** The archive's node has another learned map than the session; `metadata` has both digests. */
export class RestorerMismatch extends FailedPrecondition {
  static override readonly defaultReason: string = "RESTORER_MISMATCH";
}

/**
 * The node belongs to another fleet.
 *
 * Of a `--peer`, the node says so at its terminal once a minute, in its events and in `fleet
 * status`; so of one that nobody answers (UNREACHABLE) and of one that is no node, such as a port
 * of HTTP (NOT_A_NODE).
 */
export class FleetMismatch extends FailedPrecondition {
  static override readonly defaultReason: string = "FLEET_MISMATCH";
}

/** The two share no version of the protocol. */
export class ProtocolSkew extends FailedPrecondition {
  static override readonly defaultReason: string = "PROTOCOL_SKEW";
}

/**
 * The fleet has no authority.
 *
 * Whoever is on its network is in it, and nobody is invited or put out.
 */
export class NoAuthority extends FailedPrecondition {
  static override readonly defaultReason: string = "NO_AUTHORITY";
}

/** Only a keeper has the key of an authority, with which machines are let in and put out. */
export class NotAKeeper extends FailedPrecondition {
  static override readonly defaultReason: string = "NOT_A_KEEPER";
}

/**
 * The fleet would have no keeper left.
 *
 * Nobody could be let in, nor stay for longer than a week.
 */
export class LastKeeper extends FailedPrecondition {
  static override readonly defaultReason: string = "LAST_KEEPER";
}

/** What was said of whom the fleet trusts is too much, or has no first keeper. */
export class StatementRejected extends FailedPrecondition {
  static override readonly defaultReason: string = "STATEMENT_REJECTED";
}

/** A key of that name is in force, or several have the name that was given to revoke one. */
export class KeyAmbiguous extends FailedPrecondition {
  static override readonly defaultReason: string = "KEY_AMBIGUOUS";
}

/** A value is past what exists. */
export class OutOfRange extends RpcError {
  static override readonly defaultReason: string = "OUT_OF_RANGE";
  static override readonly defaultCode: string = "OUT_OF_RANGE";
}

/** The history would be longer than the model's positions, or than a `full` session may be. */
export class ContextExceeded extends OutOfRange {
  static override readonly defaultReason: string = "CONTEXT_EXCEEDED";
}

/** A limit of the node is reached. */
export class ResourceExhausted extends RpcError {
  static override readonly defaultReason: string = "RESOURCE_EXHAUSTED";
  static override readonly defaultCode: string = "RESOURCE_EXHAUSTED";
}

/**
 * Sessions use all the memory that keys and values may take on the node.
 *
 * None of them was idle for long enough to rest, so there is no room for a new one, for a `full`
 * one that lives to grow, or for one at rest to go on; the latter two stay as they are, with their
 * histories.
 */
export class OutOfKvMemory extends ResourceExhausted {
  static override readonly defaultReason: string = "OUT_OF_KV_MEMORY";
}

/** A watch (`fleet top`, a dashboard, an application) fell behind and was ended. */
export class WatcherTooSlow extends ResourceExhausted {
  static override readonly defaultReason: string = "WATCHER_TOO_SLOW";
}

/** The node serves as many draft streams as it may. */
export class TooManyStreams extends ResourceExhausted {
  static override readonly defaultReason: string = "TOO_MANY_STREAMS";
}

/** Archives have no room for what the session evicts. */
export class ArchiveFull extends ResourceExhausted {
  static override readonly defaultReason: string = "ARCHIVE_FULL";
}

/**
 * The key has as many sessions or generations as it may on this node.
 *
 * `metadata["limit"]` is "sessions" or "generations".
 */
export class KeyLimitReached extends ResourceExhausted {
  static override readonly defaultReason: string = "KEY_LIMIT_REACHED";
}

/**
 * The key has spent its tokens of this minute on this node.
 *
 * Appended and generated ones count together. What was done stays done: the session and its history
 * live.
 */
export class KeyTokensSpent extends ResourceExhausted {
  static override readonly defaultReason: string = "KEY_TOKENS_SPENT";
}

/** The fleet has made as many keys as it ever may: what is said of a fleet only grows. */
export class TooManyKeys extends ResourceExhausted {
  static override readonly defaultReason: string = "TOO_MANY_KEYS";
}

/**
 * The node answers as many calls as it may, or keeps as many bytes for them.
 *
 * Or this caller has more of what is scarce than others have: `metadata["cause"]` is "full" or
 * "share".
 */
export class TooManyCalls extends ResourceExhausted {
  static override readonly defaultReason: string = "TOO_MANY_CALLS";
}

/**
 * The node keeps as many sessions as it may.
 *
 * Or this caller has more of them than others have: `metadata["cause"]` is "full" or "share".
 * Sessions that are idle for a minute have made way already.
 */
export class TooManySessions extends ResourceExhausted {
  static override readonly defaultReason: string = "TOO_MANY_SESSIONS";
}

/**
 * So much work waits that a generation could not begin before its deadline.
 *
 * Nothing was computed for it.
 */
export class TooBusy extends ResourceExhausted {
  static override readonly defaultReason: string = "TOO_BUSY";
}

/**
 * The answer does not fit a message of 4 MiB, and was not asked for in parts.
 *
 * Clients of older versions ask for all of it at once.
 */
export class AnswerTooLarge extends ResourceExhausted {
  static override readonly defaultReason: string = "ANSWER_TOO_LARGE";
}

/** The caller may not do that. */
export class PermissionDenied extends RpcError {
  static override readonly defaultReason: string = "PERMISSION_DENIED";
  static override readonly defaultCode: string = "PERMISSION_DENIED";
}

/**
 * The call is allowed from the node's own machine only.
 *
 * `fleet leave` makes it there, from loopback or from another of the machine's addresses. So do
 * `fleet load` and `fleet unload` in a fleet without an authority; a path of the node's disk is
 * named there alone in every fleet.
 */
export class NotLoopback extends PermissionDenied {
  static override readonly defaultReason: string = "NOT_LOOPBACK";
}

/**
 * The caller may not do this.
 *
 * It is for members of the fleet, for keepers, or for whoever owns the node.
 */
export class NotPermitted extends PermissionDenied {
  static override readonly defaultReason: string = "NOT_PERMITTED";
}

/** The caller did not show who it is, or nobody that the node knows. */
export class Unauthenticated extends RpcError {
  static override readonly defaultReason: string = "UNAUTHENTICATED";
  static override readonly defaultCode: string = "UNAUTHENTICATED";
}

/** An application called a fleet with an authority, and showed no key. */
export class KeyMissing extends Unauthenticated {
  static override readonly defaultReason: string = "KEY_MISSING";
}

/**
 * The key is none of this fleet's.
 *
 * Or it was made a moment ago, and this node has not heard of it.
 */
export class KeyUnknown extends Unauthenticated {
  static override readonly defaultReason: string = "KEY_UNKNOWN";
}

/** The key was revoked: what it had open has ended, and nothing answers it any more. */
export class KeyRevoked extends Unauthenticated {
  static override readonly defaultReason: string = "KEY_REVOKED";
}

/** The key was good until a time that is past by the node's clock. */
export class KeyExpired extends Unauthenticated {
  static override readonly defaultReason: string = "KEY_EXPIRED";
}

/** The node's version does not serve that. */
export class Unimplemented extends RpcError {
  static override readonly defaultReason: string = "UNIMPLEMENTED";
  static override readonly defaultCode: string = "UNIMPLEMENTED";
}

/** The model, or the node's version, cannot keep keys and values that way. */
export class KvStrategyUnsupported extends Unimplemented {
  static override readonly defaultReason: string = "KV_STRATEGY_UNSUPPORTED";
}

/** The node cannot serve now. */
export class Unavailable extends RpcError {
  static override readonly defaultReason: string = "UNAVAILABLE";
  static override readonly defaultCode: string = "UNAVAILABLE";
}

/** The node is leaving the fleet and takes no new work. */
export class Draining extends Unavailable {
  static override readonly defaultReason: string = "DRAINING";
}

/** A rank of the group that served the model died, and the session ended with it. */
export class GroupLost extends Unavailable {
  static override readonly defaultReason: string = "GROUP_LOST";
}

/**
 * The thread that runs the model's steps failed by itself, before the step ran.
 *
 * The session is as it was, and the thread goes on with empty queues; the node's events and log
 * have the fault.
 */
export class WorkerFault extends Unavailable {
  static override readonly defaultReason: string = "WORKER_FAULT";
}

/** The model is still being loaded there. */
export class ModelLoading extends Unavailable {
  static override readonly defaultReason: string = "MODEL_LOADING";
}

/**
 * What the session evicted is lost, and no archive was found in time to make it anew.
 *
 * The session lives.
 */
export class RestorerLost extends Unavailable {
  static override readonly defaultReason: string = "RESTORER_LOST";
}

/** The call never got an answer of the contract. */
export class TransportError extends KakeyaError {
  static override readonly defaultReason: string = "TRANSPORT_ERROR";
}

/** No node answers at the address; `metadata["detail"]` has the network's words. */
export class NodeUnreachable extends TransportError {
  static override readonly defaultReason: string = "NODE_UNREACHABLE";
  static override readonly defaultCode: string = "UNAVAILABLE";
}

/** No answer in time; the call is cancelled on the node too. */
export class DeadlineExceeded extends TransportError {
  static override readonly defaultReason: string = "DEADLINE_EXCEEDED";
  static override readonly defaultCode: string = "DEADLINE_EXCEEDED";
}

/** The node or the network took the call back. */
export class Cancelled extends TransportError {
  static override readonly defaultReason: string = "CANCELLED";
  static override readonly defaultCode: string = "CANCELLED";
}

/** An answer outside the contract: a fault of the node, of a proxy between, or of the client. */
export class UnexpectedError extends TransportError {
  static override readonly defaultReason: string = "UNEXPECTED_ERROR";
  static override readonly defaultCode: string = "INTERNAL";
}

/** The client was used wrongly; nothing was sent. */
export class UsageError extends KakeyaError {
  static override readonly defaultReason: string = "USAGE_ERROR";
  static override readonly defaultCode: string = "FAILED_PRECONDITION";
}

/** The session's generation still runs. */
export class SessionBusy extends UsageError {
  static override readonly defaultReason: string = "SESSION_BUSY";
}

/** The client was closed before the call. */
export class ClientClosed extends UsageError {
  static override readonly defaultReason: string = "CLIENT_CLOSED";
}

/** A generation or a watch was iterated a second time. */
export class StreamConsumed extends UsageError {
  static override readonly defaultReason: string = "STREAM_CONSUMED";
}

/** An API key would travel in plain text beyond this machine; nothing was sent. */
export class KeyExposed extends UsageError {
  static override readonly defaultReason: string = "KEY_EXPOSED";
}

/** Tokenizers cannot be used. */
export class TextError extends KakeyaError {
  static override readonly defaultReason: string = "TEXT_ERROR";
  static override readonly defaultCode: string = "FAILED_PRECONDITION";
}

/**
 * No tokenizer is there.
 *
 * The model is served without one, or the folder has no `tokenizer.json`.
 */
export class TokenizerNotFound extends TextError {
  static override readonly defaultReason: string = "TOKENIZER_NOT_FOUND";
  static override readonly defaultCode: string = "NOT_FOUND";
}

/**
 * A tokenizer is not the one that the served model announces.
 *
 * Its ids would mean something else; `metadata` tells what differs.
 */
export class TokenizerMismatch extends TextError {
  static override readonly defaultReason: string = "TOKENIZER_MISMATCH";
  static override readonly defaultCode: string = "DATA_LOSS";
}

/**
 * The client is installed without tokenizers.
 *
 * It lacks the extra `kakeya[text]` in Python, the peer dependencies of `@kakeya/runtime/text` in
 * TypeScript.
 */
export class TextExtraMissing extends TextError {
  static override readonly defaultReason: string = "TEXT_EXTRA_MISSING";
}

/**
 * What was given is no message of a chat.
 *
 * `metadata["field"]` names the part, such as `messages[2].role`.
 */
export class BadMessage extends TextError {
  static override readonly defaultReason: string = "BAD_MESSAGE";
  static override readonly defaultCode: string = "INVALID_ARGUMENT";
}

/**
 * A message holds what models here cannot be told.
 *
 * They read text: no image, sound or file, and no call of something else than a function.
 * `metadata["field"]` names it.
 */
export class UnsupportedContent extends BadMessage {
  static override readonly defaultReason: string = "UNSUPPORTED_CONTENT";
}

/** The model's chat template failed on the messages; `metadata["detail"]` has its words. */
export class ChatTemplateError extends TextError {
  static override readonly defaultReason: string = "CHAT_TEMPLATE_ERROR";
  static override readonly defaultCode: string = "INVALID_ARGUMENT";
}

/** The model has no chat template, so a chat cannot be rendered for it. */
export class ChatTemplateNotFound extends ChatTemplateError {
  static override readonly defaultReason: string = "CHAT_TEMPLATE_NOT_FOUND";
  static override readonly defaultCode: string = "NOT_FOUND";
}
