/** What a node or a session is doing, as a word and a tone. */

import type { LinkView, NodeView, SessionView, Severity, Transport } from "../../shared/messages";

export type Tone = "good" | "busy" | "warn" | "bad" | "idle";

export interface StateWord {
  word: string;
  tone: Tone;
}

/** What a node can be to others. */
export type RoleName = "verifier" | "proposer" | "archive";

export function isDown(node: NodeView): boolean {
  return node.liveness === "dead" || node.liveness === "left";
}

export function nodeState(node: NodeView): StateWord {
  if (node.liveness === "dead") return { word: "dead", tone: "bad" };
  if (node.liveness === "left") return { word: "left", tone: "idle" };
  if (node.liveness === "suspect") return { word: "suspect", tone: "warn" };
  if (!node.reachable) return { word: "unreachable", tone: "warn" };
  if (node.draining) return { word: "draining", tone: "warn" };
  if (node.generatingCount > 0) return { word: "generating", tone: "busy" };
  if ((node.samples.at(-1)?.draftsPerSecond ?? 0) > 0) return { word: "drafting", tone: "busy" };
  return { word: "ready", tone: "good" };
}

export function sessionState(session: SessionView): StateWord {
  if (session.state === "generating") return { word: "generating", tone: "busy" };
  if (session.state === "appending") return { word: "appending", tone: "busy" };
  if (session.state === "resting") return { word: "resting", tone: "idle" };
  return { word: "idle", tone: "idle" };
}

export const SEVERITY_TONE: Readonly<Record<Severity, Tone>> = {
  info: "idle",
  warning: "warn",
  error: "bad",
};

export const TRANSPORT_NAME: Readonly<Record<Transport | "", string>> = {
  local: "shared memory",
  grpc: "gRPC",
  ring: "ring",
  "": "ids only",
};

export function hasRole(node: NodeView, role: "verifier" | "proposer"): boolean {
  return node.models.some((model) => model.role === role);
}

export function isArchive(node: NodeView): boolean {
  return node.archiveBudgetBytes > 0 || node.archiveBytes > 0;
}

export function usedBytes(node: NodeView): number {
  return Math.max(0, node.memoryTotalBytes - node.memoryFreeBytes);
}

export function usedShare(node: NodeView): number {
  return node.memoryTotalBytes > 0 ? Math.min(1, usedBytes(node) / node.memoryTotalBytes) : 0;
}

/** Accepted of drafted tokens over the samples at hand; undefined when none were drafted. */
export function recentAcceptance(node: NodeView): number | undefined {
  let drafted = 0;
  let accepted = 0;
  for (const sample of node.samples.slice(-60)) {
    drafted += sample.draftedCount;
    accepted += sample.acceptedCount;
  }
  return drafted > 0 ? accepted / drafted : undefined;
}

/** The best carrier first: what a pair of nodes is shown with. */
export function strongest(links: readonly LinkView[]): LinkView | undefined {
  const rank: Readonly<Record<Transport, number>> = { ring: 3, local: 2, grpc: 1 };
  return [...links].sort((one, other) => rank[other.transport] - rank[one.transport])[0];
}
