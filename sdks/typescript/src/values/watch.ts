/** Values of watches: what comes first, and what changes. */

import type {
  ArchiveOffer,
  Card,
  EndedSession,
  Liveness,
  ModelOffer,
  Node,
  NodeEvent,
  NodeHistory,
  NodeSample,
  Role,
  SessionActivity,
  SessionsSnapshot,
  Transfer,
} from "../generated/values.js";

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
  /** What it offers and the fleet's keepers do not let it serve: its card is without it. */
  readonly withheldRoles: readonly Role[];
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

/** One event of a watch of a node. */
export type NodeActivity =
  | NodeHistory
  | { readonly type: "sample"; readonly sample: NodeSample }
  | { readonly type: "event"; readonly event: NodeEvent }
  | { readonly type: "transfer"; readonly transfer: Transfer }
  | { readonly type: "node"; readonly node: Node };

/** A session that is new or did something. */
export interface SessionChanged {
  readonly type: "changed";
  readonly activity: SessionActivity;
}

/** A session that is no more. */
export type SessionEnded = EndedSession;

/** One event of a watch of a node's sessions. */
export type SessionsEvent = SessionsSnapshot | SessionChanged | SessionEnded;
