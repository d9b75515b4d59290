/** Values of placement: models, plans and why pairings were rejected. */

/**
 * How a verifier keeps keys and values. "unknown", here and in the other names
 * below, is newer than this client.
 */
export const KV_STRATEGIES = ["full", "sink_window", "restored"] as const;
export type KvStrategy = (typeof KV_STRATEGIES)[number] | "unknown";

/**
 * What is kept of the positions that a session has evicted. "archive": their
 * keys and values, in another process, exact. "projection": keys and values that
 * a learned map makes of one context vector each: fewer bytes are deposited, as
 * many are kept. "identity": a check of the plumbing, in the verifier's own process.
 */
export const RESTORER_KINDS = ["archive", "projection", "identity"] as const;
export type RestorerKind = (typeof RESTORER_KINDS)[number] | "unknown";

/** The road of tensors between verifier and proposer. */
export const TRANSPORTS = ["local", "grpc", "ring"] as const;
export type Transport = (typeof TRANSPORTS)[number] | "unknown";

/**
 * What a tensor link is for. "features": context vectors of committed tokens, to
 * a proposer. "keys_values": evicted keys and values, to or from another node.
 */
export const LINK_PURPOSES = ["features", "keys_values"] as const;
export type LinkPurpose = (typeof LINK_PURPOSES)[number] | "unknown";

/** What a node does for others with one model. */
export const ROLES = ["verifier", "proposer", "archive"] as const;
export type Role = (typeof ROLES)[number] | "unknown";

/** How a model produces tokens. */
export const MODEL_KINDS = ["autoregressive", "ngram", "masked_diffusion", "dflash"] as const;
export type ModelKind = (typeof MODEL_KINDS)[number] | "unknown";

/** Why a pairing was not chosen. */
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
] as const;
export type RejectionReason = (typeof REJECTION_REASONS)[number] | "unknown";

/** Median seconds of one step over `tokenCount` tokens on the serving machine. */
export interface StepCost {
  readonly tokenCount: number;
  readonly seconds: number;
}

/** One model in one role, as a node's card offers it. */
export interface ModelOffer {
  readonly modelId: string;
  readonly role: Role;
  readonly kind: ModelKind;
  /** SHA-256 of the weights, hexadecimal; empty for a model without weights. */
  readonly weightsDigest: string;
  readonly tokenizerDigest: string;
  readonly quantization: string;
  readonly dtype: string;
  /** Tokens; 0 for no limit of the model's own. */
  readonly vocabularySize: number;
  /** Tokens; 0 for no limit of the model's own. */
  readonly contextLength: number;
  /** Of the layers that see the whole history. */
  readonly kvBytesPerToken: number;
  readonly stepCosts: readonly StepCost[];
  /**
   * Whether the node found, when it loaded a verifier, that its bits do not
   * depend on how a history is cut into blocks; false for proposers.
   */
  readonly exact: boolean;
  /** What a session takes at most besides `kvBytesPerToken`. */
  readonly kvFixedBytes: number;
  /** "torch" or "mlx"; empty for a model without tensors. */
  readonly backend: string;
  readonly architecture: string;
  /** Of proposers: the one verifier it drafts for; empty for every one with its tokenizer. */
  readonly targetWeightsDigest: string;
  /** Of proposers: values of a context vector that it needs; 0 for none. */
  readonly featureWidth: number;
  readonly encoderDigest: string;
  readonly tappedLayers: readonly number[];
  /** Of proposers: most tokens of one draft; 0 for no limit. */
  readonly blockSize: number;
  /** Of verifiers: layers that attend to the whole history; 0 when the node does not tell. */
  readonly historyLayerCount: number;
  /** Ranks that compute a verifier together, its bytes being those of one; 0 for one process. */
  readonly rankCount: number;
  /** Threads that share one forward of a verifier, for which `exact` was found; 0 if not told. */
  readonly threadCount: number;
  /** The arithmetic of archives from which a verifier could take over itself; empty for none. */
  readonly evictedArithmetic: string;
}

/** One model on one node. */
export interface Placement {
  readonly nodeId: string;
  readonly nodeName: string;
  /** host:port. */
  readonly address: string;
  readonly modelId: string;
}

/** A pairing that was looked at and not chosen, with the numbers that decided. */
export interface Rejection {
  readonly verifier: Placement;
  /** Null when the verifier itself was rejected. */
  readonly proposer: Placement | null;
  readonly reason: RejectionReason;
  readonly explanation: string;
  /** 0 when no speed was computed. */
  readonly predictedTokensPerSecond: number;
}

/** The archive of the evicted positions `firstPosition` to `endPosition`, exclusive. */
export interface ArchiveRange {
  readonly archive: Placement;
  readonly firstPosition: number;
  readonly endPosition: number;
}

/** A proposer that a session tries on its own stream. */
export interface Trial {
  readonly proposer: Placement;
  /** At the upper end of its acceptance. */
  readonly predictedTokensPerSecondHigh: number;
}

/** What the planner decided. Predicted speeds are those with the archives. */
export interface Plan {
  readonly verifier: Placement;
  /** Null when the verifier decodes alone. */
  readonly proposer: Placement | null;
  /** Null when the verifier decodes alone. */
  readonly transport: Transport | null;
  /** Drafted tokens a block; 0 when the verifier decodes alone. */
  readonly blockSize: number;
  readonly predictedTokensPerSecond: number;
  readonly predictedAloneTokensPerSecond: number;
  /** What the prediction assumed. */
  readonly roundTripSeconds: number;
  /** What the prediction assumed a drafted token, 0 to 1. */
  readonly acceptanceRate: number;
  readonly acceptanceMeasured: boolean;
  /** The most that the session will hold. */
  readonly kvBytes: number;
  readonly reasons: readonly string[];
  readonly rejections: readonly Rejection[];
  /**
   * Whether drafting cannot change a token; false only when the request named
   * the proposer of a verifier that is not exact on its machine.
   */
  readonly exact: boolean;
  /** Keeps what a restored session evicts; null when it needs none, or none can be had. */
  readonly archive: Placement | null;
  /** All that the planned context needs; empty when all together lack the room. */
  readonly archives: readonly ArchiveRange[];
  /** How keys and values will be kept, asked for or not; null when the node does not tell. */
  readonly kvStrategy: KvStrategy | null;
  /** About four of five sessions lie between this and `acceptanceRateHigh`; both 0 alone. */
  readonly acceptanceRateLow: number;
  readonly acceptanceRateHigh: number;
  /** At `acceptanceRateLow`. */
  readonly predictedTokensPerSecondLow: number;
  /** At `acceptanceRateHigh`. */
  readonly predictedTokensPerSecondHigh: number;
  /** Whether the proposer is on trial in a session that runs. */
  readonly exploring: boolean;
  /** Proposers that a session tries because they could be faster. */
  readonly trials: readonly Trial[];
}
