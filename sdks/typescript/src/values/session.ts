/** Values of sessions and generations. */

import type {
  ArchiveRange,
  KvStrategy,
  LinkPurpose,
  Plan,
  RestorerKind,
  Transport,
} from "./plan.js";

/** Why a generation ended. "unknown", here and below, is newer than this client. */
export const STOP_REASONS = [
  "max_tokens",
  "stop_token",
  "deadline",
  "context_full",
  "draining",
] as const;
export type StopReason = (typeof STOP_REASONS)[number] | "unknown";

/** Why a session decodes without its proposer, or what a proposer did wrong. */
export const DROP_REASONS = [
  "unreachable",
  "deadline",
  "wrong_length",
  "out_of_vocabulary",
  "stale",
  "features",
  "slower_than_alone",
] as const;
export type DropReason = (typeof DROP_REASONS)[number] | "unknown";

/** Whether a session is working. */
export const SESSION_STATES = ["idle", "appending", "generating"] as const;
export type SessionState = (typeof SESSION_STATES)[number] | "unknown";

/** A fixed proposer for a session, whatever the planner predicts. */
export interface Speculation {
  readonly proposerModel: string;
  /** Empty or not given: any node that serves the model. */
  readonly nodeId?: string | undefined;
  /** Drafted tokens a block, 1 to 15; 0 or not given lets the planner choose. */
  readonly blockSize?: number | undefined;
}

/** "auto": the planner pairs a proposer when it pays; "off": the verifier decodes alone. */
export type SpeculationChoice = "auto" | "off" | Speculation;

/** A token that the model held probable, and the natural logarithm of its probability. */
export interface Alternative {
  readonly tokenId: number;
  readonly logProbability: number;
}

/** Committed tokens, oldest first; never empty. */
export interface Tokens {
  readonly tokenIds: readonly number[];
  /** Position of the first in the history. */
  readonly firstIndex: number;
  /** So many of them, counted from the first, were drafted by the proposer. */
  readonly draftedCount: number;
  /**
   * What the model itself gave each token, before bias, penalty, temperature and
   * filters: natural logarithms. Empty unless asked for.
   */
  readonly logProbabilities: readonly number[];
  /** The most probable tokens at each position; empty unless asked for. */
  readonly alternatives: readonly (readonly Alternative[])[];
}

/** Durations of one generation, in seconds. */
export interface Timings {
  /** Waiting for the session's earlier operations. */
  readonly queueSeconds: number;
  /** Keys and values that were not computed yet. */
  readonly prefillSeconds: number;
  /** From the request to the first committed token. */
  readonly firstTokenSeconds: number;
  readonly totalSeconds: number;
}

/** A kind of fault of the proposer that the session survived, and how often. */
export interface DraftFault {
  readonly reason: DropReason;
  readonly count: number;
}

/** Where the seconds of one block went. */
export interface BlockTiming {
  readonly firstIndex: number;
  readonly draftedCount: number;
  readonly acceptedCount: number;
  /** The proposer's own time. */
  readonly draftSeconds: number;
  /** The draft's round trip less `draftSeconds`. */
  readonly wireSeconds: number;
  /** What of both was not hidden behind the last verify forward. */
  readonly waitSeconds: number;
  readonly verifySeconds: number;
  readonly draftedAhead: boolean;
  /** Since the generation's start. */
  readonly startSeconds: number;
  /** Generation within the session, from 1; 0 where only one is told of. */
  readonly generationNumber: number;
  /** Tokens that it committed: the accepted ones and the verifier's own. */
  readonly committedCount: number;
  /** Whose draft came, be it empty; empty when the verifier decoded alone. */
  readonly proposerNodeId: string;
  readonly proposerModelId: string;
}

/** What one proposer did in one generation. */
export interface ProposerStatistics {
  readonly nodeId: string;
  readonly modelId: string;
  /** Blocks for which its draft came, be it empty. */
  readonly blockCount: number;
  readonly draftedCount: number;
  readonly acceptedCount: number;
  /** Tokens that these blocks committed. */
  readonly committedCount: number;
  /** Of waiting for drafts and verifying. */
  readonly seconds: number;
}

/** What speculation did in one generation. */
export interface SpeculationStatistics {
  readonly blockCount: number;
  readonly draftedCount: number;
  readonly acceptedCount: number;
  readonly verifyForwardCount: number;
  /** Generated tokens over `verifyForwardCount`. */
  readonly acceptanceLength: number;
  readonly roundTripSecondsP50: number;
  readonly roundTripSecondsP99: number;
  readonly faults: readonly DraftFault[];
  /** Null unless the session decodes alone now. */
  readonly dropReason: DropReason | null;
  readonly aheadHitCount: number;
  readonly aheadMissCount: number;
  /** The one that drafts now, or would; empty without one. */
  readonly proposerNodeId: string;
  /** Empty without a proposer. */
  readonly proposerModelId: string;
  /** All that drafted, in the order of their first blocks. */
  readonly proposers: readonly ProposerStatistics[];
}

/** A tensor link of the session went over to another road. */
export interface LinkChange {
  /** Since the generation's start; 0 before it. */
  readonly startSeconds: number;
  readonly purpose: LinkPurpose;
  readonly transport: Transport;
  /** The road's number on its link; 0 for gRPC before the first. */
  readonly generation: number;
  /** A sentence. */
  readonly reason: string;
  readonly peerNodeId: string;
}

/** The end of a generation. */
export interface GenerationDone {
  readonly stopReason: StopReason;
  readonly generatedTokenCount: number;
  readonly historyLength: number;
  readonly timings: Timings;
  readonly speculation: SpeculationStatistics;
  /** The last blocks, at most 256, oldest first. */
  readonly timeline: readonly BlockTiming[];
  /** Seed of the sampled stream; 0n when greedy. */
  readonly seed: bigint;
  /** How often what was evicted was lost meanwhile, and made anew from the history. */
  readonly restorerRebuildCount: number;
  /** What carried the session's tensors from when on, oldest first, at most 64. */
  readonly linkChanges: readonly LinkChange[];
  /** Positions of the history that no query sees any more: evicted, and not restored. */
  readonly forgottenTokenCount: number;
}

/** A whole generation: its tokens and its end; the rest as in `Tokens`. */
export interface Completion {
  readonly tokenIds: readonly number[];
  readonly done: GenerationDone;
  readonly logProbabilities: readonly number[];
  readonly alternatives: readonly (readonly Alternative[])[];
}

/** A session that was opened anew, most often on another node, and lost nothing. */
export interface Resumption {
  /** The node that was lost, host:port. */
  readonly fromAddress: string;
  /** The node that goes on, host:port; the same where its own node opened it again. */
  readonly toAddress: string;
  /** Why, as the error or stop reason says it. */
  readonly reason: string;
  /** Tokens that were appended there. */
  readonly historyLength: number;
  /** From the loss to the appended history. */
  readonly seconds: number;
}

/** What a session has evicted, and where it is. */
export interface RestorerInfo {
  readonly kind: RestorerKind;
  /** The learned map's model; empty without one. */
  readonly modelId: string;
  /** The learned map; empty without one. */
  readonly digest: string;
  /** The archive's node; empty in the verifier's own process. */
  readonly nodeId: string;
  readonly nodeName: string;
  readonly evictedTokenCount: number;
  /** Of the tensors that keep those positions. */
  readonly evictedBytes: number;
  /** How often it was lost and made anew. */
  readonly rebuildCount: number;
  /** Whether it is lost now: the session's next operation makes it anew. */
  readonly lost: boolean;
  /** Share the positions, by rising positions; empty when the node does not tell. */
  readonly archives: readonly ArchiveRange[];
  /** Those of `evictedBytes` that the verifier's own process keeps since no archive could. */
  readonly ownBytes: number;
}

/** How often a promise of a session was checked, and found broken, since it was opened. */
export interface InvariantCount {
  readonly invariant: string;
  readonly checkCount: number;
  /** The first one ends the session, so that one that answers has 0. */
  readonly violationCount: number;
}

/** The state of a session, as its node sees it. */
export interface SessionInfo {
  readonly sessionId: string;
  readonly modelId: string;
  readonly clientLabel: string;
  readonly historyLength: number;
  /** Of the tensors allocated for keys and values. */
  readonly kvBytes: number;
  readonly residentTokenCount: number;
  readonly kvStrategy: KvStrategy;
  readonly sinkTokens: number;
  readonly windowTokens: number;
  readonly state: SessionState;
  readonly idleSeconds: number;
  readonly ttlSeconds: number;
  readonly ageSeconds: number;
  readonly plan: Plan;
  /** Null unless the session decodes alone. */
  readonly dropReason: DropReason | null;
  /** Forward passes since it was opened, prefill included. */
  readonly forwardCount: number;
  /** Null unless its keys and values are restored. */
  readonly restorer: RestorerInfo | null;
  /** Empty from nodes that do not tell. */
  readonly invariants: readonly InvariantCount[];
  /** Positions of the history that no query sees any more. */
  readonly forgottenTokenCount: number;
}
