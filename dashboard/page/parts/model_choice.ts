/** Models that can be asked for, over the whole fleet. */

import { computed } from "@preact/signals";

import { nodes } from "../state/fleet";
import { nodesByOffer } from "./slow_nodes";
import { isDown } from "./states";

function ids(role: "verifier" | "proposer"): string[] {
  const found = new Set<string>();
  for (const node of nodesByOffer.value) {
    if (isDown(node)) continue;
    for (const model of node.models) if (model.role === role) found.add(model.modelId);
  }
  return [...found].sort();
}

/** Ids of models that some live node verifies with; one string, so that equal lists are equal. */
const verifierIds = computed(() => ids("verifier").join("\n"));
const proposerIds = computed(() => ids("proposer").join("\n"));

const listed = (joined: string): string[] => (joined === "" ? [] : joined.split("\n"));

export const verifierModels = computed(() => listed(verifierIds.value));
export const proposerModels = computed(() => listed(proposerIds.value));

/** The largest context of any live verifier of the model, in tokens; 0 when none tells. */
export function contextLimit(modelId: string): number {
  let most = 0;
  for (const node of nodes.peek()) {
    for (const model of node.models) {
      if (model.modelId === modelId && model.role === "verifier") {
        most = Math.max(most, model.contextLength);
      }
    }
  }
  return most;
}
