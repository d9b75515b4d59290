import type { Placement, Plan } from "@kakeya/runtime";

import type { PlacementView, PlanView } from "../../shared/messages";
import { transportOf } from "./node_view";

export function planView(plan: Plan): PlanView {
  return {
    verifier: placementView(plan.verifier),
    proposer: plan.proposer === null ? null : placementView(plan.proposer),
    transport: transportOf(plan.transport),
    blockSize: plan.blockSize,
    predictedTokensPerSecond: plan.predictedTokensPerSecond,
    predictedAloneTokensPerSecond: plan.predictedAloneTokensPerSecond,
    roundTripSeconds: plan.roundTripSeconds,
    acceptanceRate: plan.acceptanceRate,
    acceptanceRateLow: plan.acceptanceRateLow,
    acceptanceRateHigh: plan.acceptanceRateHigh,
    acceptanceMeasured: plan.acceptanceMeasured,
    predictedTokensPerSecondLow: plan.predictedTokensPerSecondLow,
    predictedTokensPerSecondHigh: plan.predictedTokensPerSecondHigh,
    trials: plan.trials.map((trial) => ({
      ...placementView(trial.proposer),
      predictedTokensPerSecondHigh: trial.predictedTokensPerSecondHigh,
    })),
    kvBytes: plan.kvBytes,
    exact: plan.exact,
    reasons: [...plan.reasons],
    archives: plan.archives.map((range) => ({
      ...placementView(range.archive),
      firstPosition: range.firstPosition,
      endPosition: range.endPosition,
    })),
    rejections: plan.rejections.map((rejection) => ({
      verifier: placementView(rejection.verifier),
      proposer: rejection.proposer === null ? null : placementView(rejection.proposer),
      reason: rejection.reason,
      explanation: rejection.explanation,
      predictedTokensPerSecond: rejection.predictedTokensPerSecond,
    })),
  };
}

function placementView(placement: Placement): PlacementView {
  const { nodeId, nodeName, modelId } = placement;
  return { nodeId, nodeName, modelId };
}
