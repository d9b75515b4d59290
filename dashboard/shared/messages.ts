/**
 * What the dashboard's process tells the page: JSON, one message an event of
 * `GET /events` (server-sent events). The first message is `fleet`; each that
 * follows changes it. Times are milliseconds since 1970 by the clock of the
 * dashboard's process, which it corrects for each node's own clock.
 */

import type * as sdk from "@kakeya/runtime";

/** What this page has a word for: the SDK's names, less the one for those that are newer. */
type Known<Name extends string> = Exclude<Name, "unknown">;

export type Liveness = Known<sdk.Liveness>;
export type Role = "verifier" | "proposer";
export type Transport = Known<sdk.Transport>;
export type Severity = Known<sdk.EventSeverity>;
export type KvStrategy = Known<sdk.KvStrategy>;
/** "auto" leaves it to the node. */
export type AskedStrategy = "auto" | KvStrategy;

/** A model in the role it is served in. */
export interface ModelView extends Pick<
  sdk.ModelOffer,
  | "modelId"
  | "weightsDigest"
  | "tokenizerDigest"
  | "quantization"
  | "dtype"
  | "contextLength"
  | "vocabularySize"
  | "backend"
  | "architecture"
  | "kind"
  | "exact"
> {
  role: Role;
  /** Median seconds of a step of one token; 0 while unmeasured. */
  stepSeconds: number;
  /** Ranks that serve it together; 1 for one process. */
  rankCount: number;
}

/** One second of a node. */
export interface Sample extends Omit<sdk.NodeSample, "atUnix"> {
  at: number;
}

/** A measured way from one node to another. */
export type WayView = Omit<sdk.PeerLink, "archiveWaitSeconds" | "address">;

/** An open tensor link, as one of its ends sees it. */
export interface LinkView extends Omit<
  sdk.TensorLink,
  "transport" | "generation" | "changedSecondsAgo"
> {
  transport: Transport;
  changedAt: number;
}

/** Acceptance that a verifier measured with a proposer. */
export interface AcceptanceView {
  verifierModelId: string;
  proposerModelId: string;
  rate: number;
  /** Four of five sessions lie between this and `rateHigh`. */
  rateLow: number;
  rateHigh: number;
  draftedCount: number;
}

/** A seed peer, host:port as it was given, that a node cannot join. */
export interface SeedFaultView extends Problem {
  address: string;
}

/** A download of a model, or a load into memory. */
export interface TransferView extends Omit<sdk.Transfer, "kind" | "state" | "startedAtUnix"> {
  nodeId: string;
  kind: Known<sdk.TransferKind>;
  state: Known<sdk.TransferState>;
  startedAt: number;
  /** What is known of a pull that a page asked for; null for all else, which nodes tell less of. */
  pull: PullView | null;
}

/** A pull, as the node tells who asked for it. */
export interface PullView {
  /** Whom it copies from, in the node's order; empty before that is known, and for the hub. */
  sources: sdk.PullSource[];
  /** Why it failed; null where it did not, or the node does not say. */
  problem: Problem | null;
}

/** Something that happened. `key` is unique in the fleet. */
export interface EventView extends Omit<sdk.NodeEvent, "number" | "atUnix" | "severity"> {
  key: string;
  at: number;
  severity: Severity;
  /** The node that tells. */
  nodeId: string;
}

/** A node. What only the node itself tells is as of `heardAt`. */
export interface NodeView {
  nodeId: string;
  name: string;
  address: string;
  isSelf: boolean;
  liveness: Liveness;
  /** Whether the dashboard's process has the node's own word now, and since when not. */
  reachable: boolean;
  unreachableReason: string;
  heardAt: number;
  roundTripSeconds: number;
  platform: string;
  accelerator: string;
  /** Names the machine, whose memory its nodes share; the node's own id where it does not tell. */
  hostId: string;
  /** macbook, mac-mini, mac-studio, linux or computer: the shape that is drawn. */
  shape: string;
  softwareVersion: string;
  protocolMin: number;
  protocolMax: number;
  startedAt: number;
  memoryTotalBytes: number;
  memoryFreeBytes: number;
  kvBytes: number;
  kvBudgetBytes: number;
  archiveBytes: number;
  archiveBudgetBytes: number;
  sessionCount: number;
  generatingCount: number;
  draining: boolean;
  ringAddress: string;
  httpAddress: string;
  models: ModelView[];
  ways: WayView[];
  links: LinkView[];
  acceptances: AcceptanceView[];
  /** Seed peers that it was told of and cannot join. */
  seedFaults: SeedFaultView[];
  /** At most 900, oldest first, one a second; empty before the node told any. */
  samples: Sample[];
}

/** A verified block. `accepted` of `drafted` tokens held; `committed` includes the verifier's own. */
export interface BlockView {
  firstIndex: number;
  drafted: number;
  accepted: number;
  committed: number;
  draftSeconds: number;
  wireSeconds: number;
  waitSeconds: number;
  verifySeconds: number;
  draftedAhead: boolean;
  startSeconds: number;
  generation: number;
}

/** A session, on the node that holds it. */
export interface SessionView {
  sessionId: string;
  nodeId: string;
  modelId: string;
  label: string;
  state: Known<sdk.SessionState>;
  historyLength: number;
  residentTokenCount: number;
  kvBytes: number;
  kvStrategy: KvStrategy;
  sinkTokens: number;
  windowTokens: number;
  openedAt: number;
  /** When its last operation ended; it is evicted `ttlSeconds` later. */
  idleSince: number;
  ttlSeconds: number;
  proposerNodeId: string;
  proposerModelId: string;
  transport: Transport | "";
  blockSize: number;
  /** Why it decodes alone now; empty when it does not. */
  dropReason: string;
  planReasons: string[];
  /** Nodes whose archives keep what it evicted. */
  archiveNodeIds: string[];
  evictedTokenCount: number;
  evictedBytes: number;
  /** Names what packs them; empty where they stay as they lie. */
  evictedCodec: string;
  /** Positions of the history that no query sees any more. */
  forgottenTokenCount: number;
  /** Positions computed once more since it was opened. */
  recomputedTokenCount: number;
  /** Promises of the session that its node checks, and how often it did. */
  invariants: { name: string; checkCount: number; violationCount: number }[];
  rebuildCount: number;
  tokensPerSecond: number;
  generationCount: number;
  generatedTokenCount: number;
  prefilledTokenCount: number;
  prefillSeconds: number;
  draftedCount: number;
  acceptedCount: number;
  verifyForwardCount: number;
  draftSeconds: number;
  wireSeconds: number;
  waitSeconds: number;
  verifySeconds: number;
  stopReason: string;
  linkChanges: { transport: Transport; purpose: string; reason: string; peerNodeId: string }[];
  /** The latest, oldest first; at most 256 are kept. */
  blocks: BlockView[];
}

/** Through whom the fleet is watched. */
export interface GatewayView {
  /** The node that tells of the fleet, or did last, host:port; empty before one did. */
  address: string;
  /** Empty while the fleet is watched; otherwise "a node at 127.0.0.1:7600" and the like. */
  waitingFor: string;
  /** Why it is waited for; empty while the fleet is watched, and before a node was asked. */
  fault: string;
}

/** The whole fleet, as the page holds it. */
export interface FleetView {
  fleetName: string;
  gateway: GatewayView;
  nodes: NodeView[];
  sessions: SessionView[];
  /** Latest last; at most 512. */
  events: EventView[];
  transfers: TransferView[];
}

export type Message =
  | { type: "fleet"; fleet: FleetView; now: number }
  /** The node without its samples, which the page keeps. */
  | { type: "node"; node: Omit<NodeView, "samples"> }
  /** A node that was reached: all that it says of itself replaces what was held of it. */
  | { type: "history"; node: NodeView; events: EventView[]; transfers: TransferView[] }
  | { type: "removed"; nodeId: string }
  | { type: "sample"; nodeId: string; sample: Sample }
  | { type: "event"; event: EventView }
  | { type: "transfer"; transfer: TransferView }
  /** The session without its blocks, and those that are new. */
  | { type: "session"; session: Omit<SessionView, "blocks">; blocks: BlockView[] }
  | { type: "session-ended"; nodeId: string; sessionId: string; outcome: string }
  | { type: "gateway"; gateway: GatewayView };

/** `POST /plan`: what to plan, and what is answered. Errors: `Problem` with status 4xx or 5xx. */
export interface PlanQuestion {
  verifierModel: string;
  proposerModel?: string;
  contextTokens: number;
  kvStrategy: AskedStrategy;
  windowTokens?: number;
}

export type PlacementView = Omit<sdk.Placement, "address">;

export interface PlanView extends Omit<
  sdk.Plan,
  | "verifier"
  | "proposer"
  | "transport"
  | "rejections"
  | "archive"
  | "archives"
  | "kvStrategy"
  | "exploring"
  | "trials"
> {
  verifier: PlacementView;
  proposer: PlacementView | null;
  transport: Transport | "";
  /** What a session tries on its own stream. */
  trials: (PlacementView & { predictedTokensPerSecondHigh: number })[];
  archives: (PlacementView & { firstPosition: number; endPosition: number })[];
  rejections: (Omit<sdk.Rejection, "verifier" | "proposer"> & {
    verifier: PlacementView;
    proposer: PlacementView | null;
  })[];
}

/** What somebody said in a conversation. */
export interface TurnView {
  role: "user" | "assistant";
  content: string;
}

/** `POST /generate`: the next answer of a conversation, with server-sent events of `ChatMessage`. */
export interface ChatRequest {
  /** A session of this page whose history is gone on with as far as it holds; empty for none. */
  sessionKey: string;
  model: string;
  /** Turns by the model's template, or one text that goes on. */
  mode: "chat" | "text";
  /** What the system says before all else; empty for nothing. */
  system: string;
  /** Oldest first; the answer follows the last. */
  turns: TurnView[];
  maxTokens: number;
  temperature: number;
  seed?: number;
  speculation: "auto" | "off";
  kvStrategy: AskedStrategy;
}

export type ChatMessage =
  /** Before "opened", while a long prompt is read: `readCount` of the history's `tokenCount`. */
  | { type: "reading"; readCount: number; tokenCount: number }
  | {
      type: "opened";
      sessionKey: string;
      sessionId: string;
      nodeId: string;
      /** Tokens of the conversation that the session holds, and those of them that were computed before. */
      historyLength: number;
      keptTokenCount: number;
      plan: PlanView;
    }
  /** One a message of the node: `pieces` are its tokens' texts, the first `drafted` of them drafted. */
  | { type: "tokens"; firstIndex: number; pieces: string[]; drafted: number }
  | {
      type: "done";
      stopReason: string;
      generatedTokenCount: number;
      seconds: number;
      firstTokenSeconds: number;
      acceptanceLength: number;
      draftedCount: number;
      acceptedCount: number;
      dropReason: string;
      forgottenTokenCount: number;
      blocks: BlockView[];
    }
  | { type: "resumed"; nodeId: string; reason: string }
  | { type: "problem"; problem: Problem };

/** `POST /close {sessionKey}` closes a session of a chat; so does the page when it goes. */

/** `POST /end {nodeId, sessionId}` ends a session on its node, where that lets this process do so. */

/**
 * `POST /logs {nodeId}` follows the log of a node of this machine, with server-sent events of
 * `LogMessage`.
 */
export type LogMessage =
  /** First; an empty path, and the end, where this machine does not have the file. */
  | { type: "file"; path: string }
  | { type: "lines"; lines: LogLine[] }
  | { type: "problem"; problem: Problem };

export type LogLevel = Severity;

export interface LogLine {
  /** From 1, as they are read. */
  number: number;
  /** Its own, or that of the line before it; 0 without either. */
  at: number;
  level: LogLevel;
  text: string;
}

/**
 * `POST /rights`: whether this process may change which models nodes serve, by node id, as each
 * node says: null where it may, else its refusal. Nodes that do not answer are absent.
 */
export type RightsView = Record<string, Problem | null>;

/** `POST /load`: what a node is to serve. Answered once its load has begun; transfers tell the rest. */
export interface LoadQuestion {
  nodeId: string;
  /** As `fleet load` takes it. */
  model: string;
  role: Role;
}

export interface LoadAnswer {
  /** The model's id where the node serves it already; empty otherwise. */
  servedAs: string;
}

/** `POST /unload`: what a node is to serve no more. Answered once its memory is free. */
export type UnloadQuestion = LoadQuestion;

export interface UnloadAnswer {
  memoryFreeBytes: number;
}

/** `POST /stored`: what pulls brought to each node's disk, by node id. Nodes that do not answer are absent. */
export type StoredView = Record<string, StoredModelView[]>;

export interface StoredModelView extends Omit<sdk.StoredModel, "pulledAtUnix"> {
  /** 0 for one that is not whole. */
  pulledAt: number;
}

/** A model, and the node on whose disk it is or is to be: what `/pull` and `/remove` are asked with. */
export interface DiskQuestion {
  nodeId: string;
  /** The name by which nodes serve it or have it. */
  model: string;
}

/** `POST /pull`: answered once the copy has begun; transfers tell the rest. */
export interface PullAnswer {
  /** Whether the node had it already. */
  wasThere: boolean;
}

/** `POST /remove`: answered once what a pull brought is gone; a pull of it that ran has ended. */
export interface RemoveAnswer {
  byteCount: number;
}

/** `POST /fit {model}`: on which machines of the fleet a model would fit, as `fleet fit` says. */
export interface FitView {
  model: string;
  /** Empty and 0 where no machine's memory is known. */
  dtype: string;
  weightBytes: number;
  machines: MachineFitView[];
}

export interface MachineFitView {
  /** The machine's nodes. */
  nodeIds: string[];
  freeBytes: number;
  fits: boolean;
  /** The answer first, then what must be known or done besides. */
  sentences: string[];
}

/** An error, for people. */
export interface Problem {
  reason: string;
  message: string;
  mend: string;
}
