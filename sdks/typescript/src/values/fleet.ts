/** Values of the fleet: nodes, what they offer, and what changes. */

import type { LinkPurpose, ModelOffer, Transport } from "./plan.js";

/** Liveness of a node, in the order of their ranks. */
export const LIVENESSES = ["alive", "suspect", "dead", "left"] as const;
export type Liveness = (typeof LIVENESSES)[number] | "unknown";

/** Memory for what verifiers of other nodes evict. */
export interface ArchiveOffer {
  readonly capacityBytes: number;
  /** When the card was made. */
  readonly freeBytes: number;
  /** Of its service, at the node's addresses. */
  readonly port: number;
  /** Names what computes there. */
  readonly arithmetic: string;
}

/** What one node is and offers, as the node itself signed it. */
export interface Card {
  readonly nodeId: string;
  readonly name: string;
  readonly fleetName: string;
  readonly bootId: string;
  readonly incarnation: number;
  readonly sequence: number;
  /** Hexadecimal. */
  readonly publicKey: string;
  /** host:port, best first. */
  readonly addresses: readonly string[];
  readonly platform: string;
  readonly acceleratorKind: string;
  readonly acceleratorName: string;
  /** Physical memory. */
  readonly memoryTotalBytes: number;
  /** When the card was made. */
  readonly memoryFreeBytes: number;
  readonly softwareVersion: string;
  readonly protocolMin: number;
  readonly protocolMax: number;
  readonly models: readonly ModelOffer[];
  /** Empty without a ring. */
  readonly ringAddress: string;
  /** Seconds since 1970 by the owner's clock; orders nothing. */
  readonly announcedAtUnix: number;
  readonly ttlSeconds: number;
  /** Null for a node without one. */
  readonly archive: ArchiveOffer | null;
  /** host:port of /v1, /health and /metrics; empty when no other machine could reach it. */
  readonly httpAddress: string;
  /** Names the machine: nodes with the same one share its memory; empty when it does not tell. */
  readonly hostId: string;
}

/** One node, as the answering node knows it. */
export interface NodeStatus {
  readonly nodeId: string;
  /** For people; the first 12 digits of the id while no card is known. */
  readonly name: string;
  /** The best address, host:port; empty when none is known. */
  readonly address: string;
  readonly liveness: Liveness;
  /** Since the last sign of life; 0 for the answering node itself. */
  readonly ageSeconds: number;
  /** Null when it was never measured. */
  readonly roundTripSeconds: number | null;
  readonly isSelf: boolean;
  /** Null while only the node's id is known. */
  readonly card: Card | null;
  /** What it serves; empty while no card is known. */
  readonly models: readonly ModelOffer[];
  /** Null without one, and while no card is known. */
  readonly archive: ArchiveOffer | null;
}

/** All nodes that are known, by name; the first event of a watch. */
export interface FleetSnapshot {
  readonly type: "snapshot";
  readonly fleetName: string;
  readonly nodes: readonly NodeStatus[];
}

/** A node that changed or is new. */
export interface NodeChanged {
  readonly type: "changed";
  readonly node: NodeStatus;
}

/** A node that was forgotten. */
export interface NodeRemoved {
  readonly type: "removed";
  readonly nodeId: string;
}

/** One event of a watch of the fleet. */
export type FleetEvent = FleetSnapshot | NodeChanged | NodeRemoved;

/** A measured way to another node. */
export interface PeerLink {
  readonly nodeId: string;
  /** Smallest round trip of the last exchanges. */
  readonly roundTripSeconds: number;
  /** Whether the proposers there are shut out by this node. */
  readonly breakerOpen: boolean;
  /** What a layer waits for an answer of the archive there, a median; null before it is known. */
  readonly archiveWaitSeconds: number | null;
}

/** Load of a node now. */
export interface NodeLoad {
  readonly sessionCount: number;
  readonly generatingCount: number;
  readonly draftStreamCount: number;
  readonly kvBytes: number;
  readonly kvBudgetBytes: number;
  readonly memoryFreeBytes: number;
  readonly archiveCount: number;
  readonly archiveBytes: number;
  readonly archiveBudgetBytes: number;
}

/** Acceptance that a verifier measured with a proposer. */
export interface MeasuredAcceptance {
  readonly verifierModelId: string;
  readonly proposerModelId: string;
  /**
   * Share of drafted tokens accepted given that all before them in the block were, 0 to 1:
   * the mean over sessions.
   */
  readonly acceptanceRate: number;
  readonly draftedCount: number;
  /** Four of five sessions lie between this and `acceptanceRateHigh`. */
  readonly acceptanceRateLow: number;
  readonly acceptanceRateHigh: number;
  /** 0 says nothing: all text repeated itself, or the node does not tell. */
  readonly sessionCount: number;
}

/** An open tensor link, as one of its ends sees it. */
export interface TensorLink {
  readonly peerNodeId: string;
  readonly purpose: LinkPurpose;
  readonly transport: Transport;
  /** Roads that were built for it; 0 while there was none but gRPC. */
  readonly generation: number;
  /** Of the latest tensors; 0 before any was measured. */
  readonly bytesPerSecond: number;
  /** A sentence about the latest change of transport. */
  readonly reason: string;
  readonly changedSecondsAgo: number;
  readonly isCaller: boolean;
  readonly tensorCount: number;
  readonly byteCount: number;
  /** How often a road was left. */
  readonly demotionCount: number;
}

/** A seed peer that a node was told of and cannot join. */
export interface SeedFault {
  /** host:port, as it was given. */
  readonly address: string;
  /** UNREACHABLE, NOT_A_NODE, FLEET_MISMATCH, PROTOCOL_SKEW, or that of another error. */
  readonly reason: string;
  /** A sentence for people. */
  readonly message: string;
  /** What mends it; empty when nothing is known to. */
  readonly mend: string;
  /** Since it was first tried in vain. */
  readonly sinceSeconds: number;
  readonly attemptCount: number;
}

/** A node as it sees itself. */
export interface Node {
  readonly card: Card;
  readonly links: readonly PeerLink[];
  readonly load: NodeLoad;
  readonly acceptances: readonly MeasuredAcceptance[];
  /** Empty when it serves none. */
  readonly metricsAddress: string;
  readonly draining: boolean;
  /** Those that are open, either way. */
  readonly tensorLinks: readonly TensorLink[];
  /** host:port of /v1, /health and /metrics; empty when it has none. */
  readonly httpAddress: string;
  /** When it was started, seconds since 1970 by its own clock. */
  readonly startedAtUnix: number;
  /** Seed peers that do not answer as nodes of its fleet. */
  readonly seedFaults: readonly SeedFault[];
}
