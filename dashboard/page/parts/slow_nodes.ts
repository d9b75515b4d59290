/** What of the nodes changes seldom, so that what shows only that is not drawn with each sample. */

import { computed } from "@preact/signals";

import { nodes } from "../state/fleet";
import { listSecond } from "./clock";

const livenessKey = computed(() =>
  nodes.value.map((node) => `${node.nodeId}${node.name}${node.liveness}`).join(),
);

const offerKey = computed(() =>
  nodes.value
    .map((node) =>
      node.models.map((each) => `${each.modelId}${each.role}${each.stepSeconds}`).join(),
    )
    .join(";"),
);

/** The nodes, anew each second, and at once when one comes, goes, dies or is alive again. */
export const nodesEachSecond = computed(() => {
  void listSecond.value;
  void livenessKey.value;
  return nodes.peek();
});

/** The nodes, anew when one comes, goes, dies, or serves another model. */
export const nodesByOffer = computed(() => {
  void livenessKey.value;
  void offerKey.value;
  return nodes.peek();
});
