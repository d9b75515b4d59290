/** Sessions and generations, from messages of `kakeya.v1` to values. */

import { create } from "@bufbuild/protobuf";

import { UnexpectedError } from "../errors.js";
import {
  KvStrategySchema,
  PlanSchema,
  RestorerKindSchema,
  RestorerSchema,
  TransportSchema,
} from "../generated/kakeya/v1/placement_pb.js";
import type {
  BlockTiming as BlockTimingMessage,
  CommittedTokens,
  GenerateDone,
  LinkChange as LinkChangeMessage,
  RestorerInfo as RestorerInfoMessage,
  SessionInfo as SessionInfoMessage,
  SpeculationStatistics as SpeculationStatisticsMessage,
  TokenAlternatives,
} from "../generated/kakeya/v1/runtime_pb.js";
import {
  DropReason as WireDropReason,
  DropReasonSchema,
  SessionStateSchema,
  StopReasonSchema,
} from "../generated/kakeya/v1/runtime_pb.js";
import { LinkPurposeSchema } from "../generated/kakeya/v1/tensor_pb.js";
import { KV_STRATEGIES, LINK_PURPOSES, RESTORER_KINDS, TRANSPORTS } from "../values/plan.js";
import {
  DROP_REASONS,
  SESSION_STATES,
  STOP_REASONS,
  type Alternative,
  type BlockTiming,
  type DropReason,
  type GenerationDone,
  type LinkChange,
  type RestorerInfo,
  type SessionInfo,
  type SpeculationStatistics,
  type StopReason,
  type Tokens,
} from "../values/session.js";
import { enumName } from "./numbers.js";
import { archiveRange, plan } from "./plan.js";

/** Tokens as they committed. */
export function tokens(message: CommittedTokens): Tokens {
  return {
    tokenIds: message.tokenIds,
    firstIndex: Number(message.firstIndex),
    draftedCount: message.draftedCount,
    logProbabilities: message.logProbabilities,
    alternatives: message.alternatives.map(alternatives),
  };
}

function alternatives(message: TokenAlternatives): readonly Alternative[] {
  if (message.tokenIds.length !== message.logProbabilities.length) {
    throw new UnexpectedError("the node sent alternatives without their log-probabilities");
  }
  return message.tokenIds.map((tokenId, index) => ({
    tokenId,
    logProbability: message.logProbabilities[index] ?? Number.NaN,
  }));
}

function dropReason(number: WireDropReason): DropReason | null {
  return number === WireDropReason.UNSPECIFIED
    ? null
    : enumName(DropReasonSchema, number, DROP_REASONS);
}

/** Why a generation ended. */
export function stopReason(number: number): StopReason {
  return enumName(StopReasonSchema, number, STOP_REASONS);
}

function statistics(message: SpeculationStatisticsMessage | undefined): SpeculationStatistics {
  return {
    blockCount: message?.blockCount ?? 0,
    draftedCount: message?.draftedCount ?? 0,
    acceptedCount: message?.acceptedCount ?? 0,
    verifyForwardCount: message?.verifyForwardCount ?? 0,
    acceptanceLength: message?.acceptanceLength ?? 0,
    roundTripSecondsP50: message?.roundTripSecondsP50 ?? 0,
    roundTripSecondsP99: message?.roundTripSecondsP99 ?? 0,
    faults: (message?.faults ?? []).map(({ reason, count }) => ({
      reason: dropReason(reason) ?? "unknown",
      count,
    })),
    dropReason: dropReason(message?.dropReason ?? WireDropReason.UNSPECIFIED),
    aheadHitCount: message?.aheadHitCount ?? 0,
    aheadMissCount: message?.aheadMissCount ?? 0,
    proposerNodeId: message?.proposerNodeId ?? "",
    proposerModelId: message?.proposerModelId ?? "",
    proposers: (message?.proposers ?? []).map((each) => ({
      nodeId: each.nodeId,
      modelId: each.modelId,
      blockCount: each.blockCount,
      draftedCount: each.draftedCount,
      acceptedCount: each.acceptedCount,
      committedCount: each.committedCount,
      seconds: each.seconds,
    })),
  };
}

/** Where the seconds of one block went. */
export function blockTiming(message: BlockTimingMessage): BlockTiming {
  return {
    firstIndex: Number(message.firstIndex),
    draftedCount: message.draftedCount,
    acceptedCount: message.acceptedCount,
    draftSeconds: message.draftSeconds,
    wireSeconds: message.wireSeconds,
    waitSeconds: message.waitSeconds,
    verifySeconds: message.verifySeconds,
    draftedAhead: message.draftedAhead,
    startSeconds: message.startSeconds,
    generationNumber: message.generationNumber,
    committedCount: message.committedCount,
    proposerNodeId: message.proposerNodeId,
    proposerModelId: message.proposerModelId,
  };
}

/** What carries a session's tensors from then on. */
export function linkChange(message: LinkChangeMessage): LinkChange {
  return {
    startSeconds: message.startSeconds,
    purpose: enumName(LinkPurposeSchema, message.purpose, LINK_PURPOSES),
    transport: enumName(TransportSchema, message.transport, TRANSPORTS),
    generation: message.generation,
    reason: message.reason,
    peerNodeId: message.peerNodeId,
  };
}

/** The end of a generation. */
export function generationDone(message: GenerateDone): GenerationDone {
  return {
    stopReason: stopReason(message.stopReason),
    generatedTokenCount: message.generatedTokenCount,
    historyLength: Number(message.historyLength),
    timings: {
      queueSeconds: message.timings?.queueSeconds ?? 0,
      prefillSeconds: message.timings?.prefillSeconds ?? 0,
      firstTokenSeconds: message.timings?.firstTokenSeconds ?? 0,
      totalSeconds: message.timings?.totalSeconds ?? 0,
    },
    speculation: statistics(message.speculation),
    timeline: message.timeline.map(blockTiming),
    seed: message.seed,
    restorerRebuildCount: message.restorerRebuildCount,
    linkChanges: message.linkChanges.map(linkChange),
    forgottenTokenCount: Number(message.forgottenTokenCount),
  };
}

/** The state of a session. */
export function sessionInfo(message: SessionInfoMessage): SessionInfo {
  return {
    sessionId: message.sessionId,
    modelId: message.modelId,
    clientLabel: message.clientLabel,
    historyLength: Number(message.historyLength),
    kvBytes: Number(message.kvBytes),
    residentTokenCount: Number(message.residentTokenCount),
    kvStrategy: enumName(KvStrategySchema, message.kvStrategy, KV_STRATEGIES),
    sinkTokens: message.sinkTokens,
    windowTokens: message.windowTokens,
    state: enumName(SessionStateSchema, message.state, SESSION_STATES),
    idleSeconds: message.idleSeconds,
    ttlSeconds: message.ttlSeconds,
    ageSeconds: message.ageSeconds,
    plan: plan(message.plan ?? create(PlanSchema)),
    dropReason: dropReason(message.dropReason),
    forwardCount: Number(message.forwardCount),
    restorer: message.restorer ? restorerInfo(message.restorer) : null,
    invariants: message.invariants.map(({ invariant, checkCount, violationCount }) => ({
      invariant,
      checkCount: Number(checkCount),
      violationCount: Number(violationCount),
    })),
    forgottenTokenCount: Number(message.forgottenTokenCount),
  };
}

function restorerInfo(message: RestorerInfoMessage): RestorerInfo {
  const kept = message.restorer ?? create(RestorerSchema);
  return {
    kind: enumName(RestorerKindSchema, kept.kind, RESTORER_KINDS),
    modelId: kept.modelId,
    digest: message.digest,
    nodeId: kept.nodeId,
    nodeName: message.nodeName,
    evictedTokenCount: Number(message.evictedTokenCount),
    evictedBytes: Number(message.evictedBytes),
    rebuildCount: message.rebuildCount,
    lost: message.lost,
    archives: message.archives.map(archiveRange),
    ownBytes: Number(message.ownBytes),
  };
}
