import { create } from "@bufbuild/protobuf";

import {
  Liveness,
  PlanSchema,
  RejectionReason,
  RejectionSchema,
  Role,
  Transport,
  type Plan,
  type Rejection,
} from "./contract";
import type { SyntheticFleet } from "./fleet";

/** A plan that reads like the real planner's: the first verifier, the nearest drafter. */
export function plan(fleet: SyntheticFleet, model: string): Plan | undefined {
  const rejections: Rejection[] = [];
  const verifiers = fleet.members.filter(({ node }) =>
    node.machine.offers.some((row) => row.modelId === model && row.role === Role.VERIFIER),
  );
  const chosen = verifiers.find(({ liveness }) => liveness === Liveness.ALIVE);
  if (chosen === undefined) return undefined;
  const verifier = chosen.node.placement(model);
  for (const other of verifiers) {
    if (other === chosen) continue;
    const dead = other.liveness !== Liveness.ALIVE;
    rejections.push(
      create(RejectionSchema, {
        verifier: other.node.placement(model),
        reason: dead ? RejectionReason.NOT_ALIVE : RejectionReason.SLOWER_THAN_CHOSEN,
        explanation: dead
          ? `${other.node.machine.name} is dead.`
          : `${other.node.machine.name} is predicted to give 61 tokens a second, ${verifier.nodeName} gives 88.`,
        predictedTokensPerSecond: dead ? 0 : 61,
      }),
    );
  }
  const tokenizer = chosen.node.machine.offers.find(
    (row) => row.modelId === model,
  )?.tokenizerDigest;
  let proposer: Plan["proposer"];
  for (const { node, liveness } of fleet.members) {
    for (const offer of node.machine.offers) {
      if (offer.role !== Role.PROPOSER) continue;
      const placement = node.placement(offer.modelId);
      const fits = offer.tokenizerDigest === "" || offer.tokenizerDigest === tokenizer;
      const alive = liveness === Liveness.ALIVE;
      if (fits && alive && proposer === undefined && offer.modelId !== "ngram") {
        proposer = placement;
        continue;
      }
      const reason = !alive
        ? RejectionReason.NOT_ALIVE
        : fits
          ? RejectionReason.SLOWER_THAN_CHOSEN
          : RejectionReason.TOKENIZER_MISMATCH;
      rejections.push(
        create(RejectionSchema, {
          verifier,
          proposer: placement,
          reason,
          explanation: fits
            ? `${placement.modelId} on ${placement.nodeName} is predicted to give 54 tokens a second.`
            : `${placement.modelId} has another tokenizer than ${model}.`,
          predictedTokensPerSecond: fits ? 54 : 0,
        }),
      );
    }
  }
  return create(PlanSchema, {
    verifier,
    ...(proposer === undefined ? {} : { proposer }),
    transport: proposer === undefined ? Transport.UNSPECIFIED : Transport.RING,
    blockSize: proposer === undefined ? 0 : 7,
    predictedTokensPerSecond: proposer === undefined ? 47 : 88,
    predictedAloneTokensPerSecond: 47,
    roundTripSeconds: proposer === undefined ? 0 : 0.0006,
    acceptanceRate: proposer === undefined ? 0 : 0.72,
    acceptanceRateLow: proposer === undefined ? 0 : 0.58,
    acceptanceRateHigh: proposer === undefined ? 0 : 0.84,
    predictedTokensPerSecondLow: proposer === undefined ? 47 : 66,
    predictedTokensPerSecondHigh: proposer === undefined ? 47 : 121,
    acceptanceMeasured: true,
    kvBytes: 151_000_000n,
    reasons: [
      `${verifier.nodeName} verifies: it has room for 151 MB of keys and values.`,
      proposer === undefined
        ? "It decodes alone: no proposer has its tokenizer."
        : `${proposer.nodeName} drafts: 88 tokens a second are predicted, 47 alone.`,
    ],
    rejections,
    exact: true,
  });
}
