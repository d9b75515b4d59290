/** What the sessions of a node do, live. */

import type { BlockTiming, LinkChange, SessionInfo, StopReason } from "./session.js";

/** How a session came to its end. */
export const SESSION_OUTCOMES = [
  "closed",
  "evicted",
  "invariant_violated",
  "group_lost",
  "drained",
] as const;
export type SessionOutcome = (typeof SESSION_OUTCOMES)[number] | "unknown";

/** What a session did since it was opened, and its latest blocks. */
export interface SessionActivity {
  readonly session: SessionInfo;
  /** Since the event before, oldest first; at first the latest ones. */
  readonly blocks: readonly BlockTiming[];
  /** Of the generation that runs, or of the latest. */
  readonly tokensPerSecond: number;
  readonly generationCount: number;
  readonly generatedTokenCount: number;
  readonly prefilledTokenCount: number;
  readonly prefillSeconds: number;
  readonly draftedCount: number;
  readonly acceptedCount: number;
  readonly verifyForwardCount: number;
  readonly draftSeconds: number;
  readonly wireSeconds: number;
  readonly waitSeconds: number;
  readonly verifySeconds: number;
  /** The latest, at most 16, oldest first. */
  readonly linkChanges: readonly LinkChange[];
  /** Why its latest generation ended; null before one did. */
  readonly stopReason: StopReason | null;
}

/** All sessions, oldest first; the first event of a watch. */
export interface SessionsSnapshot {
  readonly type: "snapshot";
  readonly sessions: readonly SessionActivity[];
}

/** A session that is new or did something. */
export interface SessionChanged {
  readonly type: "changed";
  readonly activity: SessionActivity;
}

/** A session that is no more. */
export interface SessionEnded {
  readonly type: "ended";
  readonly sessionId: string;
  readonly outcome: SessionOutcome;
}

/** One event of a watch of a node's sessions. */
export type SessionsEvent = SessionsSnapshot | SessionChanged | SessionEnded;
