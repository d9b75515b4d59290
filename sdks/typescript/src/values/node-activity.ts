/** What a node does, live: samples, events and transfers. */

import type { Node } from "./fleet.js";

/** How much an event matters. */
export const EVENT_SEVERITIES = ["info", "warning", "error"] as const;
export type EventSeverity = (typeof EVENT_SEVERITIES)[number] | "unknown";

/** What is brought into a node: "download" to its disk, "load" to the memory that computes. */
export const TRANSFER_KINDS = ["download", "load"] as const;
export type TransferKind = (typeof TRANSFER_KINDS)[number] | "unknown";

/** How a transfer stands. */
export const TRANSFER_STATES = ["running", "done", "failed"] as const;
export type TransferState = (typeof TRANSFER_STATES)[number] | "unknown";

/** What a node did in one second, and what it held at its end. Rates are means over it. */
export interface NodeSample {
  /** The second's end, seconds since 1970 by the node's clock. */
  readonly atUnix: number;
  readonly tokensPerSecond: number;
  readonly prefillTokensPerSecond: number;
  readonly sessionCount: number;
  readonly generatingCount: number;
  readonly draftStreamCount: number;
  readonly kvBytes: number;
  readonly memoryFreeBytes: number;
  readonly archiveBytes: number;
  readonly draftedCount: number;
  readonly acceptedCount: number;
  readonly verifyForwardCount: number;
  readonly draftsPerSecond: number;
  readonly linkBytesPerSecond: number;
}

/** Something that happened on a node, or that it saw. */
export interface NodeEvent {
  /** Of the event since the node's start, from 1. */
  readonly number: number;
  /** Seconds since 1970 by the node's clock. */
  readonly atUnix: number;
  readonly severity: EventSeverity;
  /** In UPPER_SNAKE_CASE. */
  readonly kind: string;
  readonly message: string;
  /** Empty when there is nothing to mend. */
  readonly mend: string;
  /** The node it is about; empty for the node that tells. */
  readonly subjectNodeId: string;
  /** The session it is about; empty for none. */
  readonly sessionId: string;
}

/** A download or a load, with its progress. */
export interface Transfer {
  readonly transferId: string;
  readonly kind: TransferKind;
  readonly modelId: string;
  readonly state: TransferState;
  readonly doneBytes: number;
  /** 0 while unknown. */
  readonly totalBytes: number;
  /** Of the latest seconds; 0 while unknown. */
  readonly bytesPerSecond: number;
  /** 0 while unknown, and at the end. */
  readonly remainingSeconds: number;
  /** Seconds since 1970 by the node's clock. */
  readonly startedAtUnix: number;
  /** Why it failed, with the mend; empty unless it did. */
  readonly error: string;
}

/** What was before the watch; its first event. */
export interface NodeHistory {
  readonly type: "history";
  readonly node: Node;
  /** Between samples. */
  readonly sampleSeconds: number;
  /** Oldest first. */
  readonly samples: readonly NodeSample[];
  /** The latest, at most 256, oldest first. */
  readonly events: readonly NodeEvent[];
  /** Those that run, and the latest that ended. */
  readonly transfers: readonly Transfer[];
}

/** One event of a watch of a node. */
export type NodeActivity =
  | NodeHistory
  | { readonly type: "sample"; readonly sample: NodeSample }
  | { readonly type: "event"; readonly event: NodeEvent }
  | { readonly type: "transfer"; readonly transfer: Transfer }
  | { readonly type: "node"; readonly node: Node };
