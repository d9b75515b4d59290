/** Models and plans, from messages of `kakeya.v1` to values and back. */

import { create } from "@bufbuild/protobuf";

import { ModelKindSchema, RoleSchema } from "../generated/kakeya/v1/model_pb.js";
import type { ModelOffer as ModelOfferMessage } from "../generated/kakeya/v1/model_pb.js";
import type {
  ArchiveRange as ArchiveRangeMessage,
  Placement as PlacementMessage,
  Plan as PlanMessage,
  Rejection as RejectionMessage,
  Restorer,
} from "../generated/kakeya/v1/placement_pb.js";
import {
  KvStrategySchema,
  RejectionReasonSchema,
  RestorerKind as WireRestorerKind,
  RestorerKindSchema,
  RestorerSchema,
  Transport as WireTransport,
  TransportSchema,
  KvStrategy as WireKvStrategy,
} from "../generated/kakeya/v1/placement_pb.js";
import {
  KV_STRATEGIES,
  MODEL_KINDS,
  REJECTION_REASONS,
  RESTORER_KINDS,
  ROLES,
  TRANSPORTS,
  type ArchiveRange,
  type KvStrategy,
  type ModelOffer,
  type Placement,
  type Plan,
  type Rejection,
  type RestorerKind,
} from "../values/plan.js";
import { enumName, enumNumber } from "./numbers.js";

/** How a session that restores what it evicts does so. All are optional. */
export interface RestorerOptions {
  /** What is kept of evicted positions; "archive" unless given. */
  readonly restorer?: RestorerKind | undefined;
  /** With "projection": the drafter whose learned map is used. */
  readonly restorerModel?: string | undefined;
  /** The archive's node; the nearest with room unless given. */
  readonly restorerNodeId?: string | undefined;
}

/** How keys and values are kept; null when the node does not tell. */
export function kvStrategy(number: WireKvStrategy): KvStrategy | null {
  return number === WireKvStrategy.UNSPECIFIED
    ? null
    : enumName(KvStrategySchema, number, KV_STRATEGIES);
}

/**
 * The wire's number of a strategy, undefined for the node's choice; throws BadRequest
 * for one that does not exist.
 */
export function kvStrategyNumber(strategy: string | undefined): WireKvStrategy {
  return strategy === undefined
    ? WireKvStrategy.UNSPECIFIED
    : enumNumber(KvStrategySchema, strategy, KV_STRATEGIES, "kvStrategy");
}

/**
 * What restores; undefined when nothing is asked for. Throws BadRequest for a kind
 * that does not exist.
 */
export function restorer(options: RestorerOptions): Restorer | undefined {
  const { restorer: kind, restorerModel, restorerNodeId } = options;
  if (kind === undefined && !restorerModel && !restorerNodeId) {
    return undefined;
  }
  return create(RestorerSchema, {
    kind:
      kind === undefined
        ? WireRestorerKind.ARCHIVE
        : enumNumber(RestorerKindSchema, kind, RESTORER_KINDS, "restorer"),
    modelId: restorerModel ?? "",
    nodeId: restorerNodeId ?? "",
  });
}

/** One model in one role. */
export function modelOffer(message: ModelOfferMessage): ModelOffer {
  return {
    modelId: message.modelId,
    role: enumName(RoleSchema, message.role, ROLES),
    kind: enumName(ModelKindSchema, message.kind, MODEL_KINDS),
    weightsDigest: message.weightsDigest,
    tokenizerDigest: message.tokenizerDigest,
    quantization: message.quantization,
    dtype: message.dtype,
    vocabularySize: message.vocabularySize,
    contextLength: message.contextLength,
    kvBytesPerToken: Number(message.kvBytesPerToken),
    stepCosts: message.stepCosts.map(({ tokenCount, seconds }) => ({ tokenCount, seconds })),
    exact: message.exact,
    kvFixedBytes: Number(message.kvFixedBytes),
    backend: message.backend,
    architecture: message.architecture,
    targetWeightsDigest: message.targetWeightsDigest,
    featureWidth: message.featureWidth,
    encoderDigest: message.encoderDigest,
    tappedLayers: [...message.tappedLayers],
    blockSize: message.blockSize,
    historyLayerCount: message.historyLayerCount,
    rankCount: message.rankCount,
    threadCount: message.threadCount,
    evictedArithmetic: message.evictedArithmetic,
  };
}

function placement(message: PlacementMessage | undefined): Placement {
  return {
    nodeId: message?.nodeId ?? "",
    nodeName: message?.nodeName ?? "",
    address: message?.address ?? "",
    modelId: message?.modelId ?? "",
  };
}

function rejection(message: RejectionMessage): Rejection {
  return {
    verifier: placement(message.verifier),
    proposer: message.proposer ? placement(message.proposer) : null,
    reason: enumName(RejectionReasonSchema, message.reason, REJECTION_REASONS),
    explanation: message.explanation,
    predictedTokensPerSecond: message.predictedTokensPerSecond,
  };
}

/** A range of evicted positions and its archive. */
export function archiveRange(message: ArchiveRangeMessage): ArchiveRange {
  return {
    archive: placement(message.archive),
    firstPosition: Number(message.firstPosition),
    endPosition: Number(message.endPosition),
  };
}

/** A plan with its reasons and rejections. */
export function plan(message: PlanMessage): Plan {
  return {
    verifier: placement(message.verifier),
    proposer: message.proposer ? placement(message.proposer) : null,
    transport:
      message.transport === WireTransport.UNSPECIFIED
        ? null
        : enumName(TransportSchema, message.transport, TRANSPORTS),
    blockSize: message.blockSize,
    predictedTokensPerSecond: message.predictedTokensPerSecond,
    predictedAloneTokensPerSecond: message.predictedAloneTokensPerSecond,
    roundTripSeconds: message.roundTripSeconds,
    acceptanceRate: message.acceptanceRate,
    acceptanceMeasured: message.acceptanceMeasured,
    kvBytes: Number(message.kvBytes),
    reasons: [...message.reasons],
    rejections: message.rejections.map(rejection),
    exact: message.exact,
    archive: message.archive ? placement(message.archive) : null,
    archives: message.archives.map(archiveRange),
    kvStrategy: kvStrategy(message.kvStrategy),
    acceptanceRateLow: message.acceptanceRateLow,
    acceptanceRateHigh: message.acceptanceRateHigh,
    predictedTokensPerSecondLow: message.predictedTokensPerSecondLow,
    predictedTokensPerSecondHigh: message.predictedTokensPerSecondHigh,
    exploring: message.exploring,
    trials: message.trials.map((each) => ({
      proposer: placement(each.proposer),
      predictedTokensPerSecondHigh: each.predictedTokensPerSecondHigh,
    })),
  };
}
