import type { Placement, Plan } from "@kakeya/runtime";

import type { PlacementView, PlanView } from "../../shared/messages";
import { transportOf } from "./node_view";

export function planView(plan: Plan): PlanView {
  const { archive: _archive, kvStrategy: _kvStrategy, exploring: _exploring, ...told } = plan;
  return {
    ...told,
    verifier: placementView(plan.verifier),
    proposer: plan.proposer === null ? null : placementView(plan.proposer),
    transport: transportOf(plan.transport),
    trials: plan.trials.map((trial) => ({
      ...placementView(trial.proposer),
      predictedTokensPerSecondHigh: trial.predictedTokensPerSecondHigh,
    })),
    archives: plan.archives.map((range) => ({
      ...placementView(range.archive),
      firstPosition: range.firstPosition,
      endPosition: range.endPosition,
    })),
    rejections: plan.rejections.map((rejection) => ({
      ...rejection,
      verifier: placementView(rejection.verifier),
      proposer: rejection.proposer === null ? null : placementView(rejection.proposer),
    })),
  };
}

function placementView(placement: Placement): PlacementView {
  const { nodeId, nodeName, modelId } = placement;
  return { nodeId, nodeName, modelId };
}
