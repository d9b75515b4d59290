/** What the SDK tells of sessions, as the page takes it. */

import type { BlockTiming, KvStrategy, SessionActivity } from "@kakeya/runtime";

import type { BlockView, SessionView } from "../../shared/messages";
import { transportOf } from "./node_view";

/** The session without its blocks; `now` by the process's clock, in milliseconds since 1970. */
export function sessionView(
  activity: SessionActivity,
  nodeId: string,
  now: number,
): Omit<SessionView, "blocks"> {
  const { session } = activity;
  const { plan, restorer } = session;
  const archives = new Set(restorer?.archives.map((range) => range.archive.nodeId) ?? []);
  if (archives.size === 0 && restorer !== null && restorer.nodeId !== "") {
    archives.add(restorer.nodeId);
  }
  archives.delete("");
  return {
    sessionId: session.sessionId,
    nodeId,
    modelId: session.modelId,
    label: session.clientLabel,
    state: session.state === "unknown" ? "idle" : session.state,
    historyLength: session.historyLength,
    residentTokenCount: session.residentTokenCount,
    kvBytes: session.kvBytes,
    kvStrategy: strategyOf(session.kvStrategy),
    sinkTokens: session.sinkTokens,
    windowTokens: session.windowTokens,
    openedAt: now - session.ageSeconds * 1000,
    idleSince: now - session.idleSeconds * 1000,
    ttlSeconds: session.ttlSeconds,
    proposerNodeId: plan.proposer?.nodeId ?? "",
    proposerModelId: plan.proposer?.modelId ?? "",
    transport: transportOf(plan.transport),
    blockSize: plan.blockSize,
    dropReason: session.dropReason ?? "",
    planReasons: [...plan.reasons],
    archiveNodeIds: [...archives],
    evictedTokenCount: restorer?.evictedTokenCount ?? 0,
    evictedBytes: restorer?.evictedBytes ?? 0,
    evictedCodec: restorer?.codec ?? "",
    forgottenTokenCount: session.forgottenTokenCount,
    recomputedTokenCount: session.recomputedTokenCount,
    invariants: session.invariants.map(({ invariant, checkCount, violationCount }) => ({
      name: invariant,
      checkCount,
      violationCount,
    })),
    rebuildCount: restorer?.rebuildCount ?? 0,
    tokensPerSecond: activity.tokensPerSecond,
    generationCount: activity.generationCount,
    generatedTokenCount: activity.generatedTokenCount,
    prefilledTokenCount: activity.prefilledTokenCount,
    prefillSeconds: activity.prefillSeconds,
    draftedCount: activity.draftedCount,
    acceptedCount: activity.acceptedCount,
    verifyForwardCount: activity.verifyForwardCount,
    draftSeconds: activity.draftSeconds,
    wireSeconds: activity.wireSeconds,
    waitSeconds: activity.waitSeconds,
    verifySeconds: activity.verifySeconds,
    stopReason: activity.stopReason ?? "",
    linkChanges: activity.linkChanges.map((change) => ({
      transport: transportOf(change.transport) || "grpc",
      purpose: change.purpose,
      reason: change.reason,
      peerNodeId: change.peerNodeId,
    })),
  };
}

export function blockView(block: BlockTiming): BlockView {
  return {
    firstIndex: block.firstIndex,
    drafted: block.draftedCount,
    accepted: block.acceptedCount,
    committed: block.committedCount,
    draftSeconds: block.draftSeconds,
    wireSeconds: block.wireSeconds,
    waitSeconds: block.waitSeconds,
    verifySeconds: block.verifySeconds,
    draftedAhead: block.draftedAhead,
    startSeconds: block.startSeconds,
    generation: block.generationNumber,
  };
}

function strategyOf(strategy: KvStrategy): SessionView["kvStrategy"] {
  return strategy === "unknown" ? "sink_window" : strategy;
}
