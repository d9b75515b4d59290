/**
 * Errors of the client.
 *
 * KakeyaError
 * ├── RpcError                    a node refused the call, and said why
 * │   ├── NotFound
 * │   │   ├── SessionNotFound       unknown, closed or evicted
 * │   │   ├── ModelNotFound         no live node serves the model
 * │   │   └── NodeNotFound          no such node in the fleet
 * │   ├── InvalidArgument
 * │   │   ├── BadRequest            a parameter outside its range
 * │   │   ├── BadPageToken          not a token of this node's pages
 * │   │   ├── EmptyAppend           an append without tokens
 * │   │   └── TokenOutOfVocabulary  an id is not below the vocabulary size
 * │   ├── FailedPrecondition
 * │   │   ├── EmptyHistory          a generation without a history
 * │   │   ├── HistoryLengthMismatch the history has another length
 * │   │   ├── InvariantViolated     a broken promise; the session has ended
 * │   │   ├── ModelServedElsewhere  another node serves the model, see `address`
 * │   │   ├── NoPlacement           a node serves the model, none can take it
 * │   │   ├── NoArchive             no live node keeps what the session evicts
 * │   │   ├── RestorerMismatch      the learned map is another on the archive's node
 * │   │   ├── TrainedForAnother     a learned map or drafter of another verifier
 * │   │   ├── FleetMismatch         the node belongs to another fleet
 * │   │   └── ProtocolSkew          no common version of the protocol
 * │   ├── OutOfRange
 * │   │   └── ContextExceeded       longer than the model's positions or the cache
 * │   ├── ResourceExhausted
 * │   │   ├── OutOfKvMemory         sessions use all memory they may take
 * │   │   ├── ArchiveFull           archives have no room for what is evicted
 * │   │   ├── TooManyStreams        the node serves no more streams
 * │   │   └── WatcherTooSlow        a watch fell behind the fleet's changes
 * │   ├── PermissionDenied
 * │   │   └── NotLoopback           allowed from the node's own machine only
 * │   ├── Unimplemented
 * │   │   └── KvStrategyUnsupported the node cannot keep keys and values that way
 * │   └── Unavailable
 * │       ├── Draining              the node is leaving
 * │       ├── ModelLoading          the model is still being loaded there
 * │       ├── GroupLost             a rank of the model's group died, and the session with it
 * │       └── RestorerLost          what was evicted is lost; the session tries again
 * ├── TransportError              the call never got an answer
 * │   ├── NodeUnreachable           no node answers at the address
 * │   ├── DeadlineExceeded          no answer in time
 * │   ├── Cancelled                 the node or the network took the call back
 * │   └── UnexpectedError           an answer outside the contract
 * ├── UsageError                  the client was used wrongly; nothing was sent
 * │   ├── ClientClosed              the client is closed
 * │   ├── SessionBusy               the session's generation still runs
 * │   ├── StreamConsumed            a stream was iterated a second time
 * │   └── KeyExposed                an API key without TLS, beyond this machine
 * └── TextError                   tokenizers, `@kakeya/runtime/text`
 *     ├── TextExtraMissing          its peer dependencies are not installed
 *     ├── TokenizerNotFound         no tokenizer there
 *     ├── TokenizerMismatch         a tokenizer that is not the announced one
 *     ├── BadMessage                no message of a chat, see `field`
 *     │   └── UnsupportedContent      images, sound, files: models here read text
 *     └── ChatTemplateError         the model's chat template failed
 *         └── ChatTemplateNotFound    the model has none
 *
 * Each has a `reason` in UPPER_SNAKE_CASE, a `code` (a canonical status such as
 * "NOT_FOUND"), `metadata` for programs, `attempts` (how often the call was sent),
 * and reads as the problem and how to mend it: "PROBLEM; MEND" where the node told
 * the two apart as `problem` and `mend`. `field` names the value at fault. A reason
 * that this client does not know keeps its name and takes the class of its status code.
 */

/** What an error has besides its message. */
export interface ErrorFields {
  readonly reason?: string | undefined;
  readonly code?: string | undefined;
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  readonly retryAfterSeconds?: number | null | undefined;
  readonly cause?: unknown;
}

/** Base of all errors of this package. */
export class KakeyaError extends Error {
  /** The `reason` of this class where no other is given. */
  static readonly defaultReason: string = "KAKEYA_ERROR";
  /** The `code` of this class where no other is given. */
  static readonly defaultCode: string = "UNKNOWN";

  /** For programs, in UPPER_SNAKE_CASE. */
  readonly reason: string;
  /** A canonical status, such as "NOT_FOUND". */
  readonly code: string;
  /** What the reason is about. */
  readonly metadata: Record<string, string>;
  /** What is wrong, without `mend`. */
  readonly problem: string;
  /** How to mend it, a few words; empty where `problem` says so itself. */
  readonly mend: string;
  /** When to try again, in seconds; null when the node did not say. */
  readonly retryAfterSeconds: number | null;
  /** How often the call was sent. */
  attempts = 1;

  constructor(problem: string, fields: ErrorFields = {}) {
    const mend = fields.metadata?.["mend"] ?? "";
    super(
      mend ? `${problem.replace(/\.+$/, "")}; ${mend}` : problem,
      fields.cause === undefined ? undefined : { cause: fields.cause },
    );
    const kind = new.target;
    this.name = kind.name;
    this.reason = fields.reason || kind.defaultReason;
    this.code = fields.code || kind.defaultCode;
    this.metadata = { ...fields.metadata };
    this.problem = problem;
    this.mend = mend;
    this.retryAfterSeconds = fields.retryAfterSeconds ?? null;
  }

  /** The parameter, or the part of a chat, that is at fault; empty for none. */
  get field(): string {
    return this.metadata["field"] ?? "";
  }
}

/** A node refused the call, and said why. */
export class RpcError extends KakeyaError {
  static override readonly defaultReason: string = "RPC_ERROR";
}

/** What the call names does not exist there. */
export class NotFound extends RpcError {
  static override readonly defaultReason: string = "NOT_FOUND";
  static override readonly defaultCode: string = "NOT_FOUND";
}

/** The session is unknown, closed or evicted. */
export class SessionNotFound extends NotFound {
  static override readonly defaultReason: string = "SESSION_NOT_FOUND";
}

/** No live node serves the model. */
export class ModelNotFound extends NotFound {
  static override readonly defaultReason: string = "MODEL_NOT_FOUND";
}

/** No such node in the fleet. */
export class NodeNotFound extends NotFound {
  static override readonly defaultReason: string = "NODE_NOT_FOUND";
}

/** A value of the request is not allowed, whatever the state of the node. */
export class InvalidArgument extends RpcError {
  static override readonly defaultReason: string = "INVALID_ARGUMENT";
  static override readonly defaultCode: string = "INVALID_ARGUMENT";
}

/** A parameter is outside its range. */
export class BadRequest extends InvalidArgument {
  static override readonly defaultReason: string = "BAD_REQUEST";
}

/** The token is not one of this node's pages. */
export class BadPageToken extends InvalidArgument {
  static override readonly defaultReason: string = "BAD_PAGE_TOKEN";
}

/** An append without tokens. */
export class EmptyAppend extends InvalidArgument {
  static override readonly defaultReason: string = "EMPTY_APPEND";
}

/** An id is not below the vocabulary size; nothing was appended. */
export class TokenOutOfVocabulary extends InvalidArgument {
  static override readonly defaultReason: string = "TOKEN_OUT_OF_VOCABULARY";
}

/** The state of the session or the node does not allow the call. */
export class FailedPrecondition extends RpcError {
  static override readonly defaultReason: string = "FAILED_PRECONDITION";
  static override readonly defaultCode: string = "FAILED_PRECONDITION";
}

/** A generation without a history. */
export class EmptyHistory extends FailedPrecondition {
  static override readonly defaultReason: string = "EMPTY_HISTORY";
}

/** The history has another length than the caller assumes. */
export class HistoryLengthMismatch extends FailedPrecondition {
  static override readonly defaultReason: string = "HISTORY_LENGTH_MISMATCH";
}

/** A broken promise of the node. The session has ended; metadata names the invariant. */
export class InvariantViolated extends FailedPrecondition {
  static override readonly defaultReason: string = "INVARIANT_VIOLATED";
}

/** Another node serves the model; the client follows once by itself. */
export class ModelServedElsewhere extends FailedPrecondition {
  static override readonly defaultReason: string = "MODEL_SERVED_ELSEWHERE";

  /** Where the model is served, host:port; empty when the node did not say. */
  get address(): string {
    return this.metadata["address"] ?? "";
  }
}

/** A node serves the model, but none can take the session as asked for. */
export class NoPlacement extends FailedPrecondition {
  static override readonly defaultReason: string = "NO_PLACEMENT";
}

/** No live node has an archive that can take the session. */
export class NoArchive extends FailedPrecondition {
  static override readonly defaultReason: string = "NO_ARCHIVE";
}

/** The archive's node has another learned map than the session; metadata has both digests. */
export class RestorerMismatch extends FailedPrecondition {
  static override readonly defaultReason: string = "RESTORER_MISMATCH";
}

/** A learned map or a drafter belongs to another verifier; metadata names both. */
export class TrainedForAnother extends FailedPrecondition {
  static override readonly defaultReason: string = "TRAINED_FOR_ANOTHER";
}

/** The node belongs to another fleet. */
export class FleetMismatch extends FailedPrecondition {
  static override readonly defaultReason: string = "FLEET_MISMATCH";
}

/** The two share no version of the protocol. */
export class ProtocolSkew extends FailedPrecondition {
  static override readonly defaultReason: string = "PROTOCOL_SKEW";
}

/** A value is past what exists. */
export class OutOfRange extends RpcError {
  static override readonly defaultReason: string = "OUT_OF_RANGE";
  static override readonly defaultCode: string = "OUT_OF_RANGE";
}

/** The history would be longer than the model's positions or the cache. */
export class ContextExceeded extends OutOfRange {
  static override readonly defaultReason: string = "CONTEXT_EXCEEDED";
}

/** A limit of the node is reached; see `retryAfterSeconds`. */
export class ResourceExhausted extends RpcError {
  static override readonly defaultReason: string = "RESOURCE_EXHAUSTED";
  static override readonly defaultCode: string = "RESOURCE_EXHAUSTED";
}

/** Sessions use all the memory that they may take; see `retryAfterSeconds`. */
export class OutOfKvMemory extends ResourceExhausted {
  static override readonly defaultReason: string = "OUT_OF_KV_MEMORY";
}

/** Archives have no room for what the session evicts; see `retryAfterSeconds`. */
export class ArchiveFull extends ResourceExhausted {
  static override readonly defaultReason: string = "ARCHIVE_FULL";
}

/** The node serves no more streams. */
export class TooManyStreams extends ResourceExhausted {
  static override readonly defaultReason: string = "TOO_MANY_STREAMS";
}

/** A watch fell behind the fleet's changes. */
export class WatcherTooSlow extends ResourceExhausted {
  static override readonly defaultReason: string = "WATCHER_TOO_SLOW";
}

/** The caller may not do that. */
export class PermissionDenied extends RpcError {
  static override readonly defaultReason: string = "PERMISSION_DENIED";
  static override readonly defaultCode: string = "PERMISSION_DENIED";
}

/** Allowed from the node's own machine only. */
export class NotLoopback extends PermissionDenied {
  static override readonly defaultReason: string = "NOT_LOOPBACK";
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

/** The node is leaving. */
export class Draining extends Unavailable {
  static override readonly defaultReason: string = "DRAINING";
}

/** The model is still being loaded there; see `retryAfterSeconds`. */
export class ModelLoading extends Unavailable {
  static override readonly defaultReason: string = "MODEL_LOADING";
}

/**
 * A rank of the group that served the model died, and the session ended with it.
 *
 * Its tokens open it again: on another node at once, here once the group is back.
 */
export class GroupLost extends Unavailable {
  static override readonly defaultReason: string = "GROUP_LOST";
}

/**
 * What the session evicted is lost, and no archive was found in time to make it anew.
 *
 * The session lives: its next operation tries again.
 */
export class RestorerLost extends Unavailable {
  static override readonly defaultReason: string = "RESTORER_LOST";
}

/** The call never got an answer of the contract. */
export class TransportError extends KakeyaError {
  static override readonly defaultReason: string = "TRANSPORT_ERROR";
}

/** No node answers at the address; `metadata.detail` has the network's words. */
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

/** An answer outside the contract: a fault of the node or of this client. */
export class UnexpectedError extends TransportError {
  static override readonly defaultReason: string = "UNEXPECTED_ERROR";
  static override readonly defaultCode: string = "INTERNAL";
}

/** The client was used wrongly; nothing was sent. */
export class UsageError extends KakeyaError {
  static override readonly defaultReason: string = "USAGE_ERROR";
  static override readonly defaultCode: string = "FAILED_PRECONDITION";
}

/** The client is closed. */
export class ClientClosed extends UsageError {
  static override readonly defaultReason: string = "CLIENT_CLOSED";
}

/** The session's generation still runs. */
export class SessionBusy extends UsageError {
  static override readonly defaultReason: string = "SESSION_BUSY";
}

/** A generation or a watch was iterated a second time. */
export class StreamConsumed extends UsageError {
  static override readonly defaultReason: string = "STREAM_CONSUMED";
}

/** An API key would travel in plain text beyond this machine: give `tls`. */
export class KeyExposed extends UsageError {
  static override readonly defaultReason: string = "KEY_EXPOSED";
}

/** Tokenizers cannot be used. */
export class TextError extends KakeyaError {
  static override readonly defaultReason: string = "TEXT_ERROR";
  static override readonly defaultCode: string = "FAILED_PRECONDITION";
}

/** The peer dependencies of `@kakeya/runtime/text` are not installed. */
export class TextExtraMissing extends TextError {
  static override readonly defaultReason: string = "TEXT_EXTRA_MISSING";
}

/** No tokenizer at that folder or hub id. */
export class TokenizerNotFound extends TextError {
  static override readonly defaultReason: string = "TOKENIZER_NOT_FOUND";
  static override readonly defaultCode: string = "NOT_FOUND";
}

/** What a node sent is not the tokenizer that it announced; metadata tells what differs. */
export class TokenizerMismatch extends TextError {
  static override readonly defaultReason: string = "TOKENIZER_MISMATCH";
  static override readonly defaultCode: string = "DATA_LOSS";
}

/** What is no message of a chat; `field` names it, such as "messages[2].role". */
export class BadMessage extends TextError {
  static override readonly defaultReason: string = "BAD_MESSAGE";
  static override readonly defaultCode: string = "INVALID_ARGUMENT";
}

/** A message says what models here cannot be told: an image, sound, a file. */
export class UnsupportedContent extends BadMessage {
  static override readonly defaultReason: string = "UNSUPPORTED_CONTENT";
}

/** The model's chat template failed; `metadata.detail` has its own words. */
export class ChatTemplateError extends TextError {
  static override readonly defaultReason: string = "CHAT_TEMPLATE_ERROR";
  static override readonly defaultCode: string = "INVALID_ARGUMENT";
}

/** The model has no chat template. */
export class ChatTemplateNotFound extends ChatTemplateError {
  static override readonly defaultReason: string = "CHAT_TEMPLATE_NOT_FOUND";
  static override readonly defaultCode: string = "NOT_FOUND";
}
