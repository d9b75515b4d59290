/**
 * Values of the contract. Made by `make stubs` from proto/.
 *
 * The name "unknown" is newer than this client, or not given.
 */

/**
 * How the verifier keeps keys and values.
 *
 * - "full": Every position stays resident: memory follows the history, or is taken at once for the
 *   longest one where the session was opened with a bound.
 * - "sink_window": The first `sinkTokens` and the last `windowTokens` stay resident.
 * - "restored": sink_window, and evicted positions are restored when attended to.
 */
export const KV_STRATEGIES = ["full", "sink_window", "restored"] as const;
export type KvStrategy = (typeof KV_STRATEGIES)[number] | "unknown";

/**
 * What is kept of the positions that a session has evicted.
 *
 * - "archive": Their keys and values, in the memory of another process: exact.
 * - "projection": Keys and values that a learned map makes of one context vector each, in the
 *   memory of another process: fewer bytes are deposited, as many are kept.
 * - "identity": Their keys and values, in the verifier's own process: a check of the plumbing, it
 *   saves no memory.
 */
export const RESTORER_KINDS = ["archive", "projection", "identity"] as const;
export type RestorerKind = (typeof RESTORER_KINDS)[number] | "unknown";

/**
 * How exactly keys and values are kept that left a session's window.
 *
 * - "lossless": As they lie in the verifier's cache.
 * - "high": Packed to 4.75 bits a number, 3.4 times the context a byte, or to what the node has
 *   measured to be as exact for its model: 2.75 to 8.5 bits.
 * - "economy": Packed to 3.75 bits a number, 4.3 times the context a byte, or to what the node has
 *   measured to be as exact for its model: 2.75 to 8.5 bits.
 */
export const KV_QUALITIES = ["lossless", "high", "economy"] as const;
export type KvQuality = (typeof KV_QUALITIES)[number] | "unknown";

/**
 * The road of tensors between verifier and proposer.
 *
 * - "local": Both in one process; of tensors also shared memory of two processes of one host.
 * - "grpc": gRPC streams.
 * - "ring": An mlx.distributed ring.
 */
export const TRANSPORTS = ["local", "grpc", "ring"] as const;
export type Transport = (typeof TRANSPORTS)[number] | "unknown";

/**
 * Why a pairing was rejected.
 *
 * - "slower_than_chosen": Another pairing is predicted to be faster.
 * - "slower_than_alone": Drafting is predicted to be slower than the verifier alone.
 * - "tokenizer_mismatch": The tokenizer digests differ.
 * - "not_enough_memory": The node's free memory does not hold the session's keys and values.
 * - "not_alive": The node is suspect, dead or has left.
 * - "protocol_skew": The nodes share no version of the protocol.
 * - "context_too_long": The context is longer than the model's positions.
 * - "not_requested": The request named another proposer, or none.
 * - "not_measured": No step of the model was measured, so that no speed can be predicted.
 * - "unreachable": The verifier cannot reach the proposer, or never measured the way to it.
 * - "breaker_open": Its drafts came late, malformed or not at all; its circuit breaker is open.
 * - "not_exact": The verifier is not exact on its machine, so that drafting could change tokens; a
 *   request that names the proposer accepts that.
 * - "wrong_target": The proposer was made for another verifier's weights.
 * - "role_not_allowed": The fleet's keepers do not let the node serve this role.
 */
export const REJECTION_REASONS = [
  "slower_than_chosen",
  "slower_than_alone",
  "tokenizer_mismatch",
  "not_enough_memory",
  "not_alive",
  "protocol_skew",
  "context_too_long",
  "not_requested",
  "not_measured",
  "unreachable",
  "breaker_open",
  "not_exact",
  "wrong_target",
  "role_not_allowed",
] as const;
export type RejectionReason = (typeof REJECTION_REASONS)[number] | "unknown";

/**
 * What a link is for.
 *
 * - "features": Context vectors of committed tokens, made from hidden states, to a proposer.
 */
export const LINK_PURPOSES = ["features"] as const;
export type LinkPurpose = (typeof LINK_PURPOSES)[number] | "unknown";

/**
 * What a node does for others with one model.
 *
 * - "verifier": Holds sessions and decides every token.
 * - "proposer": Drafts blocks of tokens; never decides one.
 * - "archive": Keeps evicted keys and values for others.
 */
export const ROLES = ["verifier", "proposer", "archive"] as const;
export type Role = (typeof ROLES)[number] | "unknown";

/**
 * How a model produces tokens.
 *
 * - "autoregressive": One token after another, causal attention.
 * - "ngram": Prompt lookup: no weights, drafts from the history itself.
 * - "masked_diffusion": Bidirectional denoising of masked tokens.
 * - "dflash": Block diffusion conditioned on a verifier's hidden states.
 */
export const MODEL_KINDS = ["autoregressive", "ngram", "masked_diffusion", "dflash"] as const;
export type ModelKind = (typeof MODEL_KINDS)[number] | "unknown";

/**
 * Liveness of a node, in the order of their ranks.
 *
 * - "alive": Answers.
 * - "suspect": Did not answer probes; may refute with a higher incarnation.
 * - "dead": Did not refute in time.
 * - "left": Left by its own, signed word.
 */
export const LIVENESSES = ["alive", "suspect", "dead", "left"] as const;
export type Liveness = (typeof LIVENESSES)[number] | "unknown";

/**
 * In what a bound is counted.
 *
 * - "places": Calls, connections, sessions or other things at once.
 * - "bytes": Bytes.
 * - "seconds": Seconds.
 * - "tokens": Tokens of a history.
 * - "values": Elements of one message or body.
 * - "a_second": Times a second.
 */
export const LIMIT_UNITS = ["places", "bytes", "seconds", "tokens", "values", "a_second"] as const;
export type LimitUnit = (typeof LIMIT_UNITS)[number] | "unknown";

/**
 * How much an event matters.
 *
 * - "info": All is well.
 * - "warning": Speed was lost, or is about to be.
 * - "error": Something failed that people asked for.
 */
export const EVENT_SEVERITIES = ["info", "warning", "error"] as const;
export type EventSeverity = (typeof EVENT_SEVERITIES)[number] | "unknown";

/**
 * What is brought into a node.
 *
 * - "download": A model's files come from other nodes, or from the hub, to the disk.
 * - "load": A model's weights come from the disk to the memory that computes.
 */
export const TRANSFER_KINDS = ["download", "load"] as const;
export type TransferKind = (typeof TRANSFER_KINDS)[number] | "unknown";

/**
 * How a transfer stands.
 *
 * - "running": It goes on.
 * - "done": It came to its end.
 * - "failed": It failed; see error.
 */
export const TRANSFER_STATES = ["running", "done", "failed"] as const;
export type TransferState = (typeof TRANSFER_STATES)[number] | "unknown";

/**
 * What a load does.
 *
 * - "waiting": Another model is loaded, or unloaded, first.
 * - "fetching": The model's files are looked for, or come from the hub, or a GGUF is converted.
 * - "reading": Its weights come into memory.
 * - "checking": It is checked and measured on this machine.
 */
export const LOAD_PHASES = ["waiting", "fetching", "reading", "checking"] as const;
export type LoadPhase = (typeof LOAD_PHASES)[number] | "unknown";

/**
 * What a pull does.
 *
 * - "asking": Members are asked who has the model, and which files it has.
 * - "checking": What an earlier pull left is compared with its digests.
 * - "copying": Its files come from members.
 * - "downloading": Its files come from the hub.
 */
export const PULL_PHASES = ["asking", "checking", "copying", "downloading"] as const;
export type PullPhase = (typeof PULL_PHASES)[number] | "unknown";

/**
 * Why a generation ended.
 *
 * - "max_tokens": `maxTokens` were generated.
 * - "stop_token": A stop id was generated; it is the last token.
 * - "deadline": `deadlineSeconds` passed.
 * - "context_full": The history reached the longest that the model's positions allow.
 * - "draining": The node is draining; the tokens are the client's, resume elsewhere.
 * - "complete": The answer is whole: its grammar allows nothing more.
 */
export const STOP_REASONS = [
  "max_tokens",
  "stop_token",
  "deadline",
  "context_full",
  "draining",
  "complete",
] as const;
export type StopReason = (typeof STOP_REASONS)[number] | "unknown";

/**
 * Why a session is decoding without its proposer, or what its proposer did wrong.
 *
 * - "unreachable": The stream to the proposer broke or never opened.
 * - "deadline": A draft did not come within its deadline.
 * - "wrong_length": Blocks of a wrong length.
 * - "out_of_vocabulary": Ids outside the vocabulary.
 * - "stale": Blocks for another history or another proposal.
 * - "slower_than_alone": Drafting was measured to be slower than decoding alone.
 * - "features": Context vectors for the proposer were lost, late, refused or not to be had.
 */
export const DROP_REASONS = [
  "unreachable",
  "deadline",
  "wrong_length",
  "out_of_vocabulary",
  "stale",
  "slower_than_alone",
  "features",
] as const;
export type DropReason = (typeof DROP_REASONS)[number] | "unknown";

/**
 * Whether a session is working.
 *
 * - "idle": Nothing runs.
 * - "appending": An append runs.
 * - "generating": A generation runs.
 * - "resting": Nothing runs, and it has no memory: another session needed it.
 */
export const SESSION_STATES = ["idle", "appending", "generating", "resting"] as const;
export type SessionState = (typeof SESSION_STATES)[number] | "unknown";

/**
 * How a session came to its end.
 *
 * - "closed": Its client closed it.
 * - "evicted": It was evicted: idle for too long, or its memory was needed.
 * - "invariant_violated": A promise was broken.
 * - "group_lost": A rank of its verifier's group was lost.
 * - "drained": Its node left.
 */
export const SESSION_OUTCOMES = [
  "closed",
  "evicted",
  "invariant_violated",
  "group_lost",
  "drained",
] as const;
export type SessionOutcome = (typeof SESSION_OUTCOMES)[number] | "unknown";

/**
 * What one step of a model costs on the machine that serves it, as measured when the model was
 * loaded.
 */
export interface StepCost {
  /** Tokens of the step: queries of a verify forward, or drafted tokens. */
  readonly tokenCount: number;
  /** Median duration of the step, in seconds. */
  readonly seconds: number;
}

/** One model in one role, as a capability card offers it. */
export interface ModelOffer {
  /** The name that requests use: "tiny", a hub id, or the folder's name. */
  readonly modelId: string;
  /** What the node does with the model. */
  readonly role: Role;
  /** How the model produces tokens. */
  readonly kind: ModelKind;
  /** SHA-256 of the weights, hexadecimal; empty for a model without weights. */
  readonly weightsDigest: string;
  /**
   * SHA-256 of the tokenizer, hexadecimal. A pair needs equal digests. Empty only for "ngram",
   * which drafts ids of any tokenizer.
   */
  readonly tokenizerDigest: string;
  /** Quantization of the weights, such as "int4-g64"; empty for none. */
  readonly quantization: string;
  /** Number format of the computation, such as "float32". */
  readonly dtype: string;
  /** Ids are 0 to `vocabularySize` - 1; 0 for "ngram". */
  readonly vocabularySize: number;
  /** Longest history that the model's positions allow; 0 for no limit. */
  readonly contextLength: number;
  /**
   * Bytes of keys and values that one resident token takes, in all layers that see the whole
   * history.
   */
  readonly kvBytesPerToken: number;
  /** Measured steps, by rising `tokenCount`. */
  readonly stepCosts: readonly StepCost[];
  /**
   * Whether the load-time check found that a verifier's bits do not depend on how a history is cut
   * into blocks, past the window, on this machine. A verifier that is not exact is paired only with
   * a proposer that the request names. False for proposers.
   */
  readonly exact: boolean;
  /**
   * Bytes that a session takes at most besides `kvBytesPerToken`: layers with sliding windows,
   * recurrent states.
   */
  readonly kvFixedBytes: number;
  /**
   * What computes the model: "torch" or "mlx"; empty for a model without tensors, and from nodes
   * that do not tell.
   */
  readonly backend: string;
  /**
   * Architecture as it was resolved when the model was loaded, such as "DFlashDraftModel v1"; empty
   * for a model without weights.
   */
  readonly architecture: string;
  /**
   * SHA-256 of the weights of the one verifier that a proposer drafts for, hexadecimal; empty when
   * it drafts for every verifier with its tokenizer.
   */
  readonly targetWeightsDigest: string;
  /**
   * Values of one context vector that the proposer needs for each position; 0 for a proposer that
   * needs none.
   */
  readonly featureWidth: number;
  /**
   * SHA-256 of the weights of the encoder that makes those vectors, hexadecimal; empty without
   * vectors.
   */
  readonly encoderDigest: string;
  /** Layers of the verifier, from 0, that the encoder takes; empty without. */
  readonly tappedLayers: readonly number[];
  /** Most tokens of one draft of a proposer; 0 for no limit of its own. */
  readonly blockSize: number;
  /**
   * Layers of a verifier that attend to the whole history: each of them asks an archive once a
   * forward. 0 for proposers, and from nodes that do not tell.
   */
  readonly historyLayerCount: number;
  /**
   * Ranks that compute a verifier together; its K/V bytes are those of one of them. 0 for a model
   * of one process.
   */
  readonly rankCount: number;
  /**
   * Threads that share one forward of a verifier. exact was checked with as many, and other numbers
   * may round otherwise: a session resumes first where they are equal. 0 where their number changes
   * no bit, for proposers, and from nodes that do not tell.
   */
  readonly threadCount: number;
  /**
   * Names what computes when the verifier's own process keeps what a session has evicted, as
   * ArchiveOffer.arithmetic does of an archive: where both are equal it takes over from one that is
   * lost. Empty when it keeps nothing, for proposers, and from nodes that do not tell.
   */
  readonly evictedArithmetic: string;
  /**
   * Names what rounds a verifier's forwards besides their shapes and threads: library, version,
   * processor's instructions. Equal weights of equal dtype and quantization have equal bits where
   * it is equal, and may have others elsewhere: a session resumes first where it is equal. Empty
   * for proposers, for groups, and from nodes that do not tell.
   */
  readonly arithmetic: string;
  /**
   * Longest history, in tokens, of which a proposer takes the keys and values that a verifier of
   * its weights on its own machine has (DraftHistory), instead of reading it. 0 for one that reads
   * every history by itself, and for verifiers.
   */
  readonly givenHistoryTokens: number;
  /**
   * Whether a proposer's drafts end by themselves where more would be too unsure to be worth its
   * time: as many tokens are asked for as one forward verifies. False for one that drafts as many
   * as it is asked for, and for verifiers.
   */
  readonly endsDrafts: boolean;
}

/** The end of a pair: one model on one node. */
export interface Placement {
  /** Node that serves the model. */
  readonly nodeId: string;
  /** The node's name, for people. */
  readonly nodeName: string;
  /** Where the node answers, host:port. */
  readonly address: string;
  /** Model on that node. */
  readonly modelId: string;
}

/** A pairing that was looked at and not chosen. */
export interface Rejection {
  /** Verifier of the pairing. */
  readonly verifier: Placement;
  /** Proposer of the pairing; null when the verifier itself was rejected. */
  readonly proposer: Placement | null;
  /** Why. */
  readonly reason: RejectionReason;
  /** One sentence for people, with the numbers that decided. */
  readonly explanation: string;
  /** Predicted speed of the pairing; 0 when it was not computed. */
  readonly predictedTokensPerSecond: number;
}

/** The archive of a range of evicted positions. */
export interface ArchiveRange {
  /** The archive. */
  readonly archive: Placement;
  /** The first position. */
  readonly firstPosition: number;
  /** The position after the last. */
  readonly endPosition: number;
}

/** A proposer that could be faster than what was chosen. */
export interface Trial {
  /** Who would draft. */
  readonly proposer: Placement;
  /** Speed with it at the upper end of its acceptance. */
  readonly predictedTokensPerSecondHigh: number;
}

/** What the planner decided. */
export interface Plan {
  /** Where the session will be. */
  readonly verifier: Placement;
  /** Who drafts; null when the verifier decodes alone. */
  readonly proposer: Placement | null;
  /**
   * Best road that both ends offer for tensors between the two, where the proposer takes any, else
   * that of its drafts; null when the verifier decodes alone. Tensors begin over gRPC and keep to a
   * better road once it is measured to be faster: the reasons say so, TensorLink what carries them.
   */
  readonly transport: Transport | null;
  /** Drafted tokens a block; 0 when the verifier decodes alone. */
  readonly blockSize: number;
  /** Predicted speed of the chosen pair; with `kvStrategy` restored, with its archives. */
  readonly predictedTokensPerSecond: number;
  /** Predicted speed of the same verifier alone. */
  readonly predictedAloneTokensPerSecond: number;
  /** Round trip between verifier and proposer that was assumed, in seconds. */
  readonly roundTripSeconds: number;
  /** Acceptance a drafted token that was assumed, 0 to 1. */
  readonly acceptanceRate: number;
  /** Whether the acceptance was measured, not assumed. */
  readonly acceptanceMeasured: boolean;
  /** Keys and values that the session will hold at most, in bytes. */
  readonly kvBytes: number;
  /** Sentences for people that say how the choice was made. */
  readonly reasons: readonly string[];
  /**
   * The other pairings, each with its reason: the 64 fastest, where there are more; how many there
   * were is among the reasons then.
   */
  readonly rejections: readonly Rejection[];
  /**
   * Whether drafting cannot change a token: the verifier is exact on its machine, or decodes alone.
   * False only when the request names the proposer of a verifier that is not exact; a reason says
   * so then.
   */
  readonly exact: boolean;
  /**
   * With `kvStrategy` restored: the archive that keeps what is evicted, its `modelId` the learned
   * map's if there is one; null when the session needs none, or none can be had.
   */
  readonly archive: Placement | null;
  /**
   * All archives that the planned context needs, by rising positions: one, or several where no
   * single one has the room. Empty without an archive, and when all together lack the room.
   */
  readonly archives: readonly ArchiveRange[];
  /**
   * Range of `acceptanceRate` that the streams measured so far, or the assumption, allow: about
   * four of five streams lie in it. Both 0 when the verifier decodes alone.
   */
  readonly acceptanceRateLow: number;
  /** The upper end of the same. */
  readonly acceptanceRateHigh: number;
  /** `predictedTokensPerSecond` at `acceptanceRateLow`. */
  readonly predictedTokensPerSecondLow: number;
  /** `predictedTokensPerSecond` at `acceptanceRateHigh`. */
  readonly predictedTokensPerSecondHigh: number;
  /**
   * Whether the proposer is on trial now, to learn its speed with this stream: the session goes
   * back to what it did before after a bounded number of tokens if it does not pay. False in a dry
   * run; its reasons name what a session will try.
   */
  readonly exploring: boolean;
  /**
   * How keys and values will be kept, whether the request said so or not; null from nodes that do
   * not tell.
   */
  readonly kvStrategy: KvStrategy | null;
  /**
   * Proposers that the session tries on its own stream, the most promising first: at the upper end
   * of their acceptance they are faster than what was chosen. Empty when the request names the
   * proposer or wants none.
   */
  readonly trials: readonly Trial[];
  /**
   * Who drafts when the proposer cannot, and is asked too when it is late; null when nobody stands
   * in.
   */
  readonly standIn: Trial | null;
}

/** Durations of one generation. */
export interface Timings {
  /** Waiting for the session's earlier operations, in seconds. */
  readonly queueSeconds: number;
  /**
   * Keys and values of tokens that were not computed yet, in seconds; those of an append are
   * computed, and told, by AppendTokens.
   */
  readonly prefillSeconds: number;
  /** From the request to the first committed token, in seconds; 0 without one. */
  readonly firstTokenSeconds: number;
  /** The whole generation, in seconds. */
  readonly totalSeconds: number;
}

/** One fault of the proposer that the session survived. */
export interface DraftFault {
  /** What went wrong. */
  readonly reason: DropReason;
  /** How often, in this generation. */
  readonly count: number;
}

/** Where the seconds of one block went. */
export interface BlockTiming {
  /** Position of the block's first token in the history. */
  readonly firstIndex: number;
  /** Drafted tokens that were verified, or cut off since a grammar forbids them. */
  readonly draftedCount: number;
  /** Drafted tokens that were accepted. */
  readonly acceptedCount: number;
  /** The proposer's own time for the draft, in seconds. */
  readonly draftSeconds: number;
  /** Round trip of the draft less `draftSeconds`, in seconds. */
  readonly wireSeconds: number;
  /**
   * Time that the verifier waited for the draft, in seconds: what of draft and wire was not hidden
   * behind the last verify forward.
   */
  readonly waitSeconds: number;
  /** The verify forward with choosing the tokens, in seconds. */
  readonly verifySeconds: number;
  /** Whether the block was drafted while the last one was verified. */
  readonly draftedAhead: boolean;
  /** The block's start, in seconds since the generation began. */
  readonly startSeconds: number;
  /**
   * Number of its generation within the session, from 1; 0 where a message tells of one generation
   * alone.
   */
  readonly generationNumber: number;
  /** Tokens that the block committed: the accepted ones and the verifier's own. */
  readonly committedCount: number;
  /** Node of the proposer that was asked for a draft; empty when none was. */
  readonly proposerNodeId: string;
  /** Its model. */
  readonly proposerModelId: string;
}

/** What one proposer did in one generation. Blocks that the verifier decoded alone are nobody's. */
export interface ProposerStatistics {
  /** Its node. */
  readonly nodeId: string;
  /** Its model. */
  readonly modelId: string;
  /** Blocks for which it was asked for a draft. */
  readonly blockCount: number;
  /** Drafted tokens that were verified. */
  readonly draftedCount: number;
  /** Drafted tokens that were accepted. */
  readonly acceptedCount: number;
  /** Tokens that its blocks committed: the accepted ones and the verifier's own. */
  readonly committedCount: number;
  /** What its blocks took, in seconds: waiting for drafts and verifying. */
  readonly seconds: number;
}

/** What speculation did in one generation. */
export interface SpeculationStatistics {
  /** Blocks that were verified with at least one drafted token. */
  readonly blockCount: number;
  /** Drafted tokens that were verified, or cut off before: see `forbiddenCount`. */
  readonly draftedCount: number;
  /** Drafted tokens that were accepted. */
  readonly acceptedCount: number;
  /** Forward passes of the verifier, prefill not counted. */
  readonly verifyForwardCount: number;
  /** Generated tokens over `verifyForwardCount`. */
  readonly acceptanceLength: number;
  /** Median round trip of a draft less the proposer's compute time, seconds. */
  readonly roundTripSecondsP50: number;
  /** 99th percentile of the same, in seconds. */
  readonly roundTripSecondsP99: number;
  /** Faults of the proposer, by kind. Being slower than alone is none: see `dropReason`. */
  readonly faults: readonly DraftFault[];
  /** Why the session decodes alone now; null when it does not. */
  readonly dropReason: DropReason | null;
  /** Blocks drafted ahead that fitted what was committed. */
  readonly aheadHitCount: number;
  /** Blocks drafted ahead that did not. */
  readonly aheadMissCount: number;
  /**
   * Node of the proposer that drafts now, or would; empty without one. The session may have tried
   * others: see proposers.
   */
  readonly proposerNodeId: string;
  /** Its model; empty without one. */
  readonly proposerModelId: string;
  /** Every proposer that was asked for a draft, in the order of their first blocks. */
  readonly proposers: readonly ProposerStatistics[];
  /**
   * Blocks that were asked of a second proposer too, the first one being late: at most one in
   * twenty. 0 from nodes that do not tell.
   */
  readonly hedgeCount: number;
  /** Those of them for which the second draft came first. */
  readonly hedgeWonCount: number;
  /**
   * Drafted tokens that went into no forward, since the generation's grammar forbids them, or one
   * before them in their block. 0 from nodes that do not tell.
   */
  readonly forbiddenCount: number;
}

/** A tensor link of the session went over to another road. */
export interface LinkChange {
  /** Seconds since the generation's start; 0 for what happened before it. */
  readonly startSeconds: number;
  /** What the link is for. */
  readonly purpose: LinkPurpose;
  /** What carries it from then on. */
  readonly transport: Transport;
  /** The road's number on its link; 0 for gRPC before the first. */
  readonly generation: number;
  /** A sentence that says why. */
  readonly reason: string;
  /** The node at the other end. */
  readonly peerNodeId: string;
}

/** The end of a generation. */
export interface GenerationDone {
  /** Why it ended. */
  readonly stopReason: StopReason;
  /** Tokens generated by this call. */
  readonly generatedTokenCount: number;
  /** Tokens in the history now. */
  readonly historyLength: number;
  /** Durations. */
  readonly timings: Timings;
  /** Speculation. */
  readonly speculation: SpeculationStatistics;
  /** The last blocks, at most 256, oldest first. */
  readonly timeline: readonly BlockTiming[];
  /** Seed of the sampled stream; 0 when greedy. */
  readonly seed: bigint;
  /**
   * How often what was evicted was lost during the generation and made anew from the history, on
   * the same archive or another.
   */
  readonly restorerRebuildCount: number;
  /**
   * Changes of what carries the session's tensor links since its generation before, oldest first,
   * at most 64.
   */
  readonly linkChanges: readonly LinkChange[];
  /**
   * Positions of the history that no query sees any more, at the generation's end: evicted, and not
   * restored. With `kvStrategy` sink_window, what the history has beyond sink and window; else 0.
   */
  readonly forgottenTokenCount: number;
  /**
   * Positions of the history whose keys and values this generation computed once more: the session
   * had rested, or what it had evicted was lost.
   */
  readonly recomputedTokenCount: number;
  /**
   * How exactly keys and values behind the latest positions were kept at its end: what the session
   * was opened for, or its `qualityWhenShort`. Unspecified from nodes that do not tell.
   */
  readonly kvQuality: KvQuality;
}

/** What a session has evicted, and where it is. */
export interface RestorerInfo {
  /** What is kept. */
  readonly kind: RestorerKind;
  /** Model of the learned map; empty without one. */
  readonly modelId: string;
  /** SHA-256 of the learned map and its encoder, hexadecimal; empty without. */
  readonly digest: string;
  /** The archive's node; empty in the verifier's own process. */
  readonly nodeId: string;
  /**
   * With `kvStrategy` full: how exactly they may be kept once the verifier is short of memory, less
   * so than quality says; unspecified for never. The session begins packed where its memory is not
   * free without another's rest. Later it is packed when it finds no room to grow, or wakes to less
   * free memory than it had: its history is computed once more, and it goes on, to its end, as one
   * of that quality. Nodes of earlier versions never pack it.
   */
  readonly qualityWhenShort: KvQuality;
  /**
   * Name of the node, for people; empty in the verifier's own process, and while the archive is
   * lost.
   */
  readonly nodeName: string;
  /** Positions that are evicted and kept there. */
  readonly evictedTokenCount: number;
  /** Bytes of the tensors that keep them there. */
  readonly evictedBytes: number;
  /** How often it was lost and made anew since the session was opened. */
  readonly rebuildCount: number;
  /** Whether it is lost now: the session's next operation makes it anew. */
  readonly lost: boolean;
  /**
   * The archives that share it, by rising positions, as far as it reaches now: several where one
   * had not the room. A range without an archive is kept in the verifier's own process. Empty with
   * "identity", while it is lost, and from nodes that do not tell.
   */
  readonly archives: readonly ArchiveRange[];
  /**
   * Those of `evictedBytes` that are in the verifier's own process since no archive was left to
   * take them. They count in the session's `kvBytes`, and grow with the context.
   */
  readonly ownBytes: number;
  /**
   * Answers of archives that the verifier computed again, as spot checks, and found right. 0 from
   * nodes that do not tell.
   */
  readonly auditedAnswerCount: number;
  /**
   * First of the positions whose tokens, if they were chosen and not appended, may be others than
   * they would have been: an archive that was found to give wrong numbers answered then. All later
   * ones are right.
   */
  readonly doubtfulFrom: number;
  /** The end of those positions, exclusive; 0 while nothing is doubtful. */
  readonly doubtfulEnd: number;
  /**
   * How exactly they are kept; only lossless with "projection". Packed ones leave the window in
   * tiles of 64 positions, and `sinkTokens` is rounded up to whole tiles.
   */
  readonly quality: KvQuality;
  /**
   * Names what packs keys and values. In answers empty where they stay as they lie. In requests for
   * a packed quality the codec to take, as a session has that goes on from its tokens: one of int8,
   * kvarn4, kvarn4v3, kvarn3, kvarn3v2 and kvarn2; empty for the one that the node has found to be
   * exact enough for its model. Nodes of earlier versions take their quality's own.
   */
  readonly codec: string;
}

/** How often a promise of a session was checked, and found broken. */
export interface InvariantCount {
  /** Its name: history_cache_agreement, bounded_kv_memory, contiguous_commit or finite_logits. */
  readonly invariant: string;
  /** Checks since the session was opened. */
  readonly checkCount: number;
  /** Those that failed. The first one ends the session, so that a session that answers has 0. */
  readonly violationCount: number;
}

/** The state of a session. */
export interface SessionInfo {
  /** The session. */
  readonly sessionId: string;
  /** Its verifier model. */
  readonly modelId: string;
  /** The name that its client gave. */
  readonly clientLabel: string;
  /** Tokens in the history. */
  readonly historyLength: number;
  /** Bytes of the tensors allocated for keys and values, with `ownBytes` of what restores them. */
  readonly kvBytes: number;
  /** Positions whose keys and values are resident. */
  readonly residentTokenCount: number;
  /** How keys and values are kept. */
  readonly kvStrategy: KvStrategy;
  /** Positions at the start that stay resident. */
  readonly sinkTokens: number;
  /** Latest positions that stay resident. */
  readonly windowTokens: number;
  /** What it does now. */
  readonly state: SessionState;
  /** Seconds since its last operation ended. */
  readonly idleSeconds: number;
  /** Idle seconds after which it is evicted. */
  readonly ttlSeconds: number;
  /** Seconds since it was opened. */
  readonly ageSeconds: number;
  /** The pair that serves it. */
  readonly plan: Plan;
  /** Why it decodes alone now; null when it does not. */
  readonly dropReason: DropReason | null;
  /** Forward passes of the verifier since it was opened, prefill included. */
  readonly forwardCount: number;
  /**
   * What it has evicted; null unless `kvStrategy` is restored, or full and packed: then it is what
   * left the latest positions, of "identity".
   */
  readonly restorer: RestorerInfo | null;
  /** What was checked, by name. Empty from nodes that do not tell. */
  readonly invariants: readonly InvariantCount[];
  /** Positions of the history that no query sees any more; see GenerationDone. */
  readonly forgottenTokenCount: number;
  /** Positions computed once more since it was opened; see GenerationDone. */
  readonly recomputedTokenCount: number;
  /**
   * Positions of the history whose keys and values are computed, while an append runs too: all but
   * the last where nothing is left to compute. 0 from nodes that do not tell.
   */
  readonly computedTokenCount: number;
}

/** What a session did since it was opened, and its latest blocks. */
export interface SessionActivity {
  /** Its state. */
  readonly session: SessionInfo;
  /**
   * Blocks since the message before, at most the latest 256, oldest first; at first the latest
   * ones.
   */
  readonly blocks: readonly BlockTiming[];
  /** Of the generation that runs, or of the latest, in tokens a second. */
  readonly tokensPerSecond: number;
  /** Generations that began. */
  readonly generationCount: number;
  /** Tokens that they committed. */
  readonly generatedTokenCount: number;
  /** Appended tokens whose keys and values were computed. */
  readonly prefilledTokenCount: number;
  /** The time of that, in seconds. */
  readonly prefillSeconds: number;
  /** Drafted tokens that were verified. */
  readonly draftedCount: number;
  /** Drafted tokens that were accepted. */
  readonly acceptedCount: number;
  /** Forward passes that chose tokens. */
  readonly verifyForwardCount: number;
  /** Proposers' own time for drafts, in seconds. */
  readonly draftSeconds: number;
  /** Round trips of drafts less `draftSeconds`, in seconds. */
  readonly wireSeconds: number;
  /** Time that the verifier waited for drafts, in seconds. */
  readonly waitSeconds: number;
  /** Verify forwards with choosing the tokens, in seconds. */
  readonly verifySeconds: number;
  /** Latest changes of what carries its tensor links, at most 16, oldest first. */
  readonly linkChanges: readonly LinkChange[];
  /** Why its latest generation ended; null before one did. */
  readonly stopReason: StopReason | null;
}

/** All sessions of a node. */
export interface SessionsSnapshot {
  readonly type: "snapshot";
  /** The sessions, oldest first. */
  readonly sessions: readonly SessionActivity[];
}

/** A session that is no more. */
export interface EndedSession {
  readonly type: "ended";
  /** The session. */
  readonly sessionId: string;
  /** How it ended. */
  readonly outcome: SessionOutcome;
}

/** A text's vector. */
export interface TextVector {
  /**
   * The vector, of length 1; as many values as the model's hidden states have. The same for the
   * same ids, whoever else is served meanwhile, where the model is exact.
   */
  readonly values: readonly number[];
  /**
   * The model that made it, as the node's card offers it: vectors of other weights are not
   * comparable with it.
   */
  readonly model: ModelOffer;
}

/** Memory that keeps what verifiers of other nodes have evicted. */
export interface ArchiveOffer {
  /** Bytes that archives may take together. */
  readonly capacityBytes: number;
  /** Bytes of them that were free when the card was made. */
  readonly freeBytes: number;
  /** Port of ArchiveService at the node's addresses. */
  readonly port: number;
  /** Names what computes; see OpenArchiveResponse. */
  readonly arithmetic: string;
}

/** What one node is and offers. Signed by its owner as serialized bytes. */
export interface Card {
  /** SHA-256 of `publicKey`, hexadecimal. */
  readonly nodeId: string;
  /** Name for people. */
  readonly name: string;
  /** Fleet that the node belongs to. */
  readonly fleetName: string;
  /** Random at every start; two of them under one `nodeId` betray a clone. */
  readonly bootId: string;
  /** Raised by the owner alone, at a start or to refute; durable. */
  readonly incarnation: number;
  /** Rises with every change of the card within an incarnation. */
  readonly sequence: number;
  /** Ed25519 public key, hexadecimal. */
  readonly publicKey: string;
  /** Where the node answers, host:port, best first. */
  readonly addresses: readonly string[];
  /** Operating system and processor, such as "linux/x86_64". */
  readonly platform: string;
  /** "cpu", "metal", "cuda" or "mps"; a device that the node does not use is not named. */
  readonly acceleratorKind: string;
  /** Name for people, such as "Apple M4 Pro". */
  readonly acceleratorName: string;
  /** Physical memory, in bytes. */
  readonly memoryTotalBytes: number;
  /** Free memory when the card was made, in bytes. */
  readonly memoryFreeBytes: number;
  /** Version of kakeya-fleet. */
  readonly softwareVersion: string;
  /** Lowest protocol version spoken. */
  readonly protocolMin: number;
  /** Highest protocol version spoken. */
  readonly protocolMax: number;
  /** Models and the roles they are served in. */
  readonly models: readonly ModelOffer[];
  /** Where the node's ring listens; empty when it has none. */
  readonly ringAddress: string;
  /** Owner's clock when the card was made, in seconds since 1970; for people, it orders nothing. */
  readonly announcedAtUnix: number;
  /** Seconds without any sign of life after which the card may be dropped. */
  readonly ttlSeconds: number;
  /** Its archive; null when it has none. */
  readonly archive: ArchiveOffer | null;
  /**
   * Where the node's HTTP answers (/v1, /health, /metrics), host:port; empty when it has none, or
   * none that another machine could reach.
   */
  readonly httpAddress: string;
  /**
   * Names the machine as long as it runs: nodes with the same one share its memory. A digest, of
   * which nothing else can be learned; empty from nodes that do not tell.
   */
  readonly hostId: string;
  /** Makes the owner a member of a fleet with an authority: X.509, DER; empty in one without. */
  readonly certificate: string;
  /** The port of its addresses at which applications with a key call HTTPS; 0 when they cannot. */
  readonly httpsPort: number;
  /** The same of gRPC, by TLS. */
  readonly applicationsPort: number;
  /**
   * Bytes that the node may have at most in the memory that its accelerator computes in, and those
   * free there at announcement: the machine's own unless the accelerator has memory apart. 0 from
   * nodes that do not tell.
   */
  readonly acceleratorMemoryTotalBytes: number;
  /** See `acceleratorMemoryTotalBytes`. */
  readonly acceleratorMemoryFreeBytes: number;
  /**
   * Number formats in which the accelerator computes weights, keys and values: "float32",
   * "bfloat16". Empty from nodes that do not tell, and where no back end is installed.
   */
  readonly acceleratorDtypes: readonly string[];
}

/** A measured way to another node. */
export interface PeerLink {
  /** The other node. */
  readonly nodeId: string;
  /** Smallest round trip of the last exchanges, in seconds. */
  readonly roundTripSeconds: number;
  /** Whether a proposer there is shut out by a breaker of this node. */
  readonly breakerOpen: boolean;
  /**
   * What a layer of this node's verifiers waits for an answer of the archive there, in seconds:
   * median of the latest; null before there were enough.
   */
  readonly archiveWaitSeconds: number | null;
  /**
   * The address at which the other node answered last, host:port: of those on its card the one that
   * works from here; empty from nodes that do not tell.
   */
  readonly address: string;
  /**
   * Proposer models there that are shut out. None beside `breakerOpen`, from nodes that do not
   * tell, is all of them.
   */
  readonly breakerOpenModels: readonly string[];
}

/** Load of a node, which never rides on cards. */
export interface NodeLoad {
  /** Sessions that are open. */
  readonly sessionCount: number;
  /** Sessions that generate now. */
  readonly generatingCount: number;
  /** Draft streams that are served. */
  readonly draftStreamCount: number;
  /** Bytes of keys and values allocated. */
  readonly kvBytes: number;
  /** Bytes that sessions may take together. */
  readonly kvBudgetBytes: number;
  /** Free memory now, in bytes. */
  readonly memoryFreeBytes: number;
  /** Archives that are open here for sessions of any node. */
  readonly archiveCount: number;
  /** Bytes that they take. */
  readonly archiveBytes: number;
  /** Bytes that they may take together; 0 without the role. */
  readonly archiveBudgetBytes: number;
  /**
   * Share of the cores that the node may run on which programs of the machine kept busy, 0 to 1,
   * over the latest second; null before there is one, and from nodes that do not tell.
   */
  readonly cpuShare: number | null;
  /**
   * Share of the same cores that the node's own process had, 0 to 1, without the ranks that it
   * started; null before there is a second, and from nodes that do not tell.
   */
  readonly processCpuShare: number | null;
}

/** Acceptance that a verifier measured with a proposer. */
export interface MeasuredAcceptance {
  /** Verifier model. */
  readonly verifierModelId: string;
  /** Proposer model. */
  readonly proposerModelId: string;
  /**
   * Share of drafted tokens that were accepted given that all before them in the block were, 0 to
   * 1: the mean over recent sessions, each of which counts once. Text that repeats itself is left
   * out.
   */
  readonly acceptanceRate: number;
  /** Drafted tokens that the figure stands on. */
  readonly draftedCount: number;
  /** Tenth percentile of the same over the sessions. */
  readonly acceptanceRateLow: number;
  /** Ninetieth percentile: four of five sessions lie between the two. */
  readonly acceptanceRateHigh: number;
  /**
   * Sessions that the figure stands on; one with few tokens compared counts as a part of one. 0
   * when all text repeated itself, and from nodes that do not tell: nothing is predicted of it
   * then.
   */
  readonly sessionCount: number;
}

/** An open tensor link, as one of its ends sees it. */
export interface TensorLink {
  /** The node at the other end. */
  readonly peerNodeId: string;
  /** What it is for. */
  readonly purpose: LinkPurpose;
  /** What carries it now. */
  readonly transport: Transport;
  /** Roads that were built for it; 0 while there was none but gRPC. */
  readonly generation: number;
  /** Of the latest tensors, in bytes a second; 0 before any was measured. */
  readonly bytesPerSecond: number;
  /** A sentence about the latest change of transport. */
  readonly reason: string;
  /** Seconds since that change. */
  readonly changedSecondsAgo: number;
  /** Whether this node opened it. */
  readonly isCaller: boolean;
  /** Tensors that were sent and received. */
  readonly tensorCount: number;
  /** Their bytes. */
  readonly byteCount: number;
  /** Times that a road was left. */
  readonly demotionCount: number;
}

/** A seed peer that this node was told of and cannot join. */
export interface SeedFault {
  /** host:port, as it was given. */
  readonly address: string;
  /**
   * Why, in UPPER_SNAKE_CASE: UNREACHABLE, NOT_A_NODE, FLEET_MISMATCH, PROTOCOL_SKEW, or the reason
   * of another error.
   */
  readonly reason: string;
  /** A sentence for people. */
  readonly message: string;
  /** A sentence that says what mends it; empty when nothing is known to. */
  readonly mend: string;
  /** Seconds since it was first tried in vain. */
  readonly sinceSeconds: number;
  /** How often it was tried in vain since. */
  readonly attemptCount: number;
}

/** A node as it sees itself. */
export interface Node {
  /** Its card. */
  readonly card: Card;
  /** Measured ways to others. */
  readonly links: readonly PeerLink[];
  /** Its load. */
  readonly load: NodeLoad;
  /** Acceptance by pair, as measured here. */
  readonly acceptances: readonly MeasuredAcceptance[];
  /** Where /metrics is served, host:port; empty when it is not. */
  readonly metricsAddress: string;
  /** Whether the node is draining. */
  readonly draining: boolean;
  /** Tensor links that are open, either way. */
  readonly tensorLinks: readonly TensorLink[];
  /** Where its HTTP answers (/v1, /health, /metrics), host:port; empty when it has none. */
  readonly httpAddress: string;
  /** Owner's clock when the node was started, in seconds since 1970. */
  readonly startedAtUnix: number;
  /** Seed peers that do not answer as nodes of this fleet. */
  readonly seedFaults: readonly SeedFault[];
}

/** One bound of a node, and what is taken of it. */
export interface LimitUse {
  /** Name, such as "drafts.streams"; also the label `limit` of the node's metrics. */
  readonly name: string;
  /** In what it is counted. */
  readonly unit: LimitUnit;
  /** The bound. */
  readonly limit: number;
  /** What callers hold now. */
  readonly used: number;
  /** Refused since the node's start because all of it was taken. */
  readonly refusedFullCount: number;
  /** Refused since then because the caller held more than others of what was scarce. */
  readonly refusedShareCount: number;
  /** Why it is what it is, in sentences: its formula or its reason. */
  readonly why: string;
  /** Whether callers hold it and are counted; nobody holds a deadline or a size. */
  readonly isCounted: boolean;
}

/** What a node knows of one codec of one of its verifiers. */
export interface MeasuredCodec {
  /** The verifier model. */
  readonly modelId: string;
  /** Digest of its weights; what is measured is kept by it. */
  readonly weightsDigest: string;
  /** How it is computed: back end, number format and quantization. */
  readonly arithmetic: string;
  /** The codec, such as "kvarn4". */
  readonly codec: string;
  /** Bits of a packed number at most, scales included. */
  readonly bits: number;
  /** Positions of sessions' histories that it was measured on; at least 16 tell something. */
  readonly positionCount: number;
  /**
   * Mean divergence of the choices' distributions from those of unpacked keys and values,
   * KL(unpacked || packed) in nats; 0 before it is measured.
   */
  readonly divergenceNats: number;
  /** The true mean lies within so many nats of it; 0 before two positions. */
  readonly errorNats: number;
  /** The qualities whose new sessions get it. */
  readonly qualities: readonly KvQuality[];
  /** Why they do, in sentences; empty where none does. */
  readonly reasons: readonly string[];
  /** When it was last measured, in seconds since 1970; 0 for never. */
  readonly measuredAtUnix: number;
  /** Whether it is measured no more, until it is reset. */
  readonly isSettled: boolean;
}

/** A count or a name that says more of a span. */
export interface SpanAttribute {
  /** Such as "tokens". */
  readonly name: string;
  /** Such as "128". */
  readonly value: string;
}

/** Work that a node did for a request, from its begin to its end. */
export interface Span {
  /** Of the request everywhere: 32 hexadecimal digits. */
  readonly traceId: string;
  /** Of this span: 16 hexadecimal digits. */
  readonly spanId: string;
  /**
   * The span that this is a part of, there or on the node that asked for it; empty for the first
   * one.
   */
  readonly parentSpanId: string;
  /**
   * What was done: a method such as "/kakeya.v1.RuntimeService/Generate", a route such as "POST
   * /v1/chat/completions", or a part of either such as "prefill".
   */
  readonly name: string;
  /** By the node's own clock, in seconds since 1970. Clocks of two nodes differ. */
  readonly startedAtUnix: number;
  /** How long it took, in seconds. */
  readonly durationSeconds: number;
  /** The `requestId` that its caller gave; empty without one. */
  readonly requestId: string;
  /**
   * How it ended: empty when well, else the reason of its error, or CANCELLED when its caller left
   * or its deadline passed.
   */
  readonly fault: string;
  /** What else is known: counts and names, such as "tokens" or "model". */
  readonly attributes: readonly SpanAttribute[];
}

/** What a node did for a request. */
export interface NodeSpans {
  /** The node. */
  readonly nodeId: string;
  /** Its name. */
  readonly nodeName: string;
  /** Its spans of the request, by their begin. */
  readonly spans: readonly Span[];
}

/** What a node did in one second, and what it held at its end. Rates are means over that second. */
export interface NodeSample {
  /** The second's end by the node's clock, in seconds since 1970. */
  readonly atUnix: number;
  /** Tokens that generations committed, a second. */
  readonly tokensPerSecond: number;
  /** Appended tokens whose keys and values were computed, a second. */
  readonly prefillTokensPerSecond: number;
  /** Sessions that are open. */
  readonly sessionCount: number;
  /** Sessions that generate. */
  readonly generatingCount: number;
  /** Draft streams that are served. */
  readonly draftStreamCount: number;
  /** Bytes of keys and values allocated. */
  readonly kvBytes: number;
  /** Free memory of the machine, in bytes. */
  readonly memoryFreeBytes: number;
  /** Bytes that archives take. */
  readonly archiveBytes: number;
  /** Drafted tokens that were verified in this second. */
  readonly draftedCount: number;
  /** Drafted tokens that were accepted in this second. */
  readonly acceptedCount: number;
  /** Forward passes of verifiers in this second, prefill not counted. */
  readonly verifyForwardCount: number;
  /** Blocks that were drafted here for any node, a second. */
  readonly draftsPerSecond: number;
  /** Bytes of tensors that tensor links carried, either way, a second. */
  readonly linkBytesPerSecond: number;
  /**
   * Share of the cores that the node may run on which programs of the machine kept busy, 0 to 1;
   * null when the system does not tell, and from nodes that do not.
   */
  readonly cpuShare: number | null;
  /**
   * Share of the same cores that the node's own process had, 0 to 1, without the ranks that it
   * started; null from nodes that do not tell.
   */
  readonly processCpuShare: number | null;
  /**
   * Share of the time in which the accelerator that the node computes on had work of any program, 0
   * to 1, over its driver's latest period of up to a second; null when there is none, and when the
   * driver does not tell.
   */
  readonly acceleratorShare: number | null;
}

/** Something that happened on a node, or that it saw. */
export interface NodeEvent {
  /** Number of the event on its node since the node's start, from 1. */
  readonly number: number;
  /** The node's clock, in seconds since 1970. */
  readonly atUnix: number;
  /** How much it matters. */
  readonly severity: EventSeverity;
  /** What happened, in UPPER_SNAKE_CASE, such as PEER_DEAD or LINK_DEMOTED. */
  readonly kind: string;
  /** A sentence for people. */
  readonly message: string;
  /** A sentence that says what mends it; empty when there is nothing to mend. */
  readonly mend: string;
  /** The node it is about; empty for the node that tells. */
  readonly subjectNodeId: string;
  /** The session it is about; empty for none. */
  readonly sessionId: string;
}

/** A download or a load, with its progress. */
export interface Transfer {
  /** Names it on its node. */
  readonly transferId: string;
  /** What is brought. */
  readonly kind: TransferKind;
  /** The model. */
  readonly modelId: string;
  /** How it stands. */
  readonly state: TransferState;
  /** Bytes that have come. */
  readonly doneBytes: number;
  /** Bytes in all; 0 while unknown. */
  readonly totalBytes: number;
  /** Rate of the latest seconds, in bytes a second; 0 while unknown. */
  readonly bytesPerSecond: number;
  /** Seconds until its end at that rate; 0 while unknown, and at the end. */
  readonly remainingSeconds: number;
  /** The node's clock when it began, in seconds since 1970. */
  readonly startedAtUnix: number;
  /** Why it failed, with the mend; empty unless it did. */
  readonly error: string;
}

/** What a watcher gets first. */
export interface NodeHistory {
  readonly type: "history";
  /** The node as it is. */
  readonly node: Node;
  /** Seconds between samples. */
  readonly sampleSeconds: number;
  /** Samples, oldest first. */
  readonly samples: readonly NodeSample[];
  /** The latest events, at most 256, oldest first. */
  readonly events: readonly NodeEvent[];
  /** Transfers that run, and the latest that ended, at most 64. */
  readonly transfers: readonly Transfer[];
}

/** How a load stands. */
export interface LoadProgress {
  /** What it does now. */
  readonly phase: LoadPhase;
  /**
   * The download or the load of this phase, as WatchNode tells of it; null while it waits, and
   * before there is one.
   */
  readonly transfer: Transfer | null;
}

/** A model that is served. */
export interface LoadedModel {
  /** As the node's card offers it. */
  readonly offer: ModelOffer;
  /** Whether it was served when the call came. */
  readonly wasServed: boolean;
}

/** What is served no more. */
export interface UnloadedModel {
  /** The model's name. */
  readonly modelId: string;
  /** The role in which it was served. */
  readonly role: Role;
  /** Free memory of the machine, in bytes. */
  readonly memoryFreeBytes: number;
}

/** A node that a model's files come from. */
export interface PullSource {
  /** Its id. */
  readonly nodeId: string;
  /** Its name. */
  readonly nodeName: string;
  /** Bytes of it that were kept. */
  readonly doneBytes: number;
  /** Why nothing is taken from it any more; empty while something may be. */
  readonly fault: string;
}

/** How a pull stands. */
export interface PullProgress {
  /** What it does now. */
  readonly phase: PullPhase;
  /** The pull as WatchNode tells of it; null before it has one. */
  readonly transfer: Transfer | null;
  /**
   * Whom it copies from, in the order in which they are preferred; empty before that is known, and
   * for the hub.
   */
  readonly sources: readonly PullSource[];
}

/** A model that is on the disk. */
export interface PulledModel {
  /** By which it can be loaded. */
  readonly modelId: string;
  /** Bytes of its files; 0 for one that was not copied from members. */
  readonly byteCount: number;
  /** How many files; 0 for one that was not copied from members. */
  readonly fileCount: number;
  /**
   * SHA-256 of its files' names, sizes and pieces, hexadecimal: equal where all files are. Empty
   * for one that was not copied from members.
   */
  readonly filesDigest: string;
  /** Whether it was on the disk when the call came. */
  readonly wasThere: boolean;
  /** Whom it was copied from; empty for the hub, and for one that was there. */
  readonly sources: readonly PullSource[];
}

/** What was removed. */
export interface RemovedModel {
  /** The model's name. */
  readonly modelId: string;
  /** Bytes that its files had on the disk. */
  readonly byteCount: number;
}

/** One model that PullModel brought. */
export interface StoredModel {
  /** By which it can be loaded. */
  readonly modelId: string;
  /** Bytes of its files; what is there of one that is not whole. */
  readonly byteCount: number;
  /** SHA-256 of its files' names, sizes and pieces, hexadecimal: equal where all files are. */
  readonly filesDigest: string;
  /** Whether all of it is there; another pull goes on where it is not. */
  readonly isWhole: boolean;
  /** Whether this node serves it now, or loads it. */
  readonly isServed: boolean;
  /** When it came, in seconds since 1970; 0 for one that is not whole. */
  readonly pulledAtUnix: number;
  /** Names of the nodes that it was copied from. */
  readonly sourceNames: readonly string[];
}
