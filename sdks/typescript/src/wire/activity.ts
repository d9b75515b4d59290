/** What nodes and their sessions do, from messages of `kakeya.v1` to values. */

import { create } from "@bufbuild/protobuf";

import {
  EventSeveritySchema,
  GetNodeResponseSchema,
  TransferKindSchema,
  TransferStateSchema,
  type NodeEvent as NodeEventMessage,
  type NodeHistory as NodeHistoryMessage,
  type NodeSample as NodeSampleMessage,
  type Transfer as TransferMessage,
  type WatchNodeResponse,
} from "../generated/kakeya/v1/capability_pb.js";
import {
  SessionInfoSchema,
  SessionOutcomeSchema,
  StopReason as WireStopReason,
  type SessionActivity as SessionActivityMessage,
  type WatchSessionsResponse,
} from "../generated/kakeya/v1/runtime_pb.js";
import {
  EVENT_SEVERITIES,
  TRANSFER_KINDS,
  TRANSFER_STATES,
  type NodeActivity,
  type NodeEvent,
  type NodeHistory,
  type NodeSample,
  type Transfer,
} from "../values/node-activity.js";
import {
  SESSION_OUTCOMES,
  type SessionActivity,
  type SessionsEvent,
} from "../values/session-activity.js";
import { node } from "./fleet.js";
import { enumName } from "./numbers.js";
import { blockTiming, linkChange, sessionInfo, stopReason } from "./session.js";

/** One event of a watch of a node; null for a kind that is newer than this client. */
export function nodeActivity(message: WatchNodeResponse): NodeActivity | null {
  switch (message.kind.case) {
    case "history":
      return nodeHistory(message.kind.value);
    case "sample":
      return { type: "sample", sample: nodeSample(message.kind.value) };
    case "event":
      return { type: "event", event: nodeEvent(message.kind.value) };
    case "transfer":
      return { type: "transfer", transfer: transfer(message.kind.value) };
    case "node":
      return { type: "node", node: node(message.kind.value) };
    case undefined:
      return null;
  }
}

function nodeHistory(message: NodeHistoryMessage): NodeHistory {
  return {
    type: "history",
    node: node(message.node ?? create(GetNodeResponseSchema)),
    sampleSeconds: message.sampleSeconds,
    samples: message.samples.map(nodeSample),
    events: message.events.map(nodeEvent),
    transfers: message.transfers.map(transfer),
  };
}

function nodeSample(message: NodeSampleMessage): NodeSample {
  return {
    atUnix: message.atUnix,
    tokensPerSecond: message.tokensPerSecond,
    prefillTokensPerSecond: message.prefillTokensPerSecond,
    sessionCount: message.sessionCount,
    generatingCount: message.generatingCount,
    draftStreamCount: message.draftStreamCount,
    kvBytes: Number(message.kvBytes),
    memoryFreeBytes: Number(message.memoryFreeBytes),
    archiveBytes: Number(message.archiveBytes),
    draftedCount: message.draftedCount,
    acceptedCount: message.acceptedCount,
    verifyForwardCount: message.verifyForwardCount,
    draftsPerSecond: message.draftsPerSecond,
    linkBytesPerSecond: message.linkBytesPerSecond,
  };
}

function nodeEvent(message: NodeEventMessage): NodeEvent {
  return {
    number: Number(message.number),
    atUnix: message.atUnix,
    severity: enumName(EventSeveritySchema, message.severity, EVENT_SEVERITIES),
    kind: message.kind,
    message: message.message,
    mend: message.mend,
    subjectNodeId: message.subjectNodeId,
    sessionId: message.sessionId,
  };
}

function transfer(message: TransferMessage): Transfer {
  return {
    transferId: message.transferId,
    kind: enumName(TransferKindSchema, message.kind, TRANSFER_KINDS),
    modelId: message.modelId,
    state: enumName(TransferStateSchema, message.state, TRANSFER_STATES),
    doneBytes: Number(message.doneBytes),
    totalBytes: Number(message.totalBytes),
    bytesPerSecond: message.bytesPerSecond,
    remainingSeconds: message.remainingSeconds,
    startedAtUnix: message.startedAtUnix,
    error: message.error,
  };
}

/** One event of a watch of sessions; null for a kind that is newer than this client. */
export function sessionsEvent(message: WatchSessionsResponse): SessionsEvent | null {
  switch (message.kind.case) {
    case "snapshot":
      return { type: "snapshot", sessions: message.kind.value.sessions.map(sessionActivity) };
    case "changed":
      return { type: "changed", activity: sessionActivity(message.kind.value) };
    case "ended":
      return {
        type: "ended",
        sessionId: message.kind.value.sessionId,
        outcome: enumName(SessionOutcomeSchema, message.kind.value.outcome, SESSION_OUTCOMES),
      };
    case undefined:
      return null;
  }
}

function sessionActivity(message: SessionActivityMessage): SessionActivity {
  return {
    session: sessionInfo(message.session ?? create(SessionInfoSchema)),
    blocks: message.blocks.map(blockTiming),
    tokensPerSecond: message.tokensPerSecond,
    generationCount: message.generationCount,
    generatedTokenCount: Number(message.generatedTokenCount),
    prefilledTokenCount: Number(message.prefilledTokenCount),
    prefillSeconds: message.prefillSeconds,
    draftedCount: Number(message.draftedCount),
    acceptedCount: Number(message.acceptedCount),
    verifyForwardCount: Number(message.verifyForwardCount),
    draftSeconds: message.draftSeconds,
    wireSeconds: message.wireSeconds,
    waitSeconds: message.waitSeconds,
    verifySeconds: message.verifySeconds,
    linkChanges: message.linkChanges.map(linkChange),
    stopReason:
      message.stopReason === WireStopReason.UNSPECIFIED ? null : stopReason(message.stopReason),
  };
}
