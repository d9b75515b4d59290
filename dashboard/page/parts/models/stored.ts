/** What pulls brought to the nodes' disks, as the page knows it. */

import { computed, signal } from "@preact/signals";

import type { StoredView } from "../../../shared/messages";
import { ProblemError, stored as askStored } from "../../state/ask";
import { events, transfers } from "../../state/fleet";
import { nodesByOffer } from "../slow_nodes";
import { isDown } from "../states";

/** By node id; undefined while it is not known. */
export const stored = signal<StoredView | undefined>(undefined);

/** Another string whenever nodes may keep something else than before. */
export const diskNews = computed(() =>
  JSON.stringify([
    nodesByOffer.value.map(({ nodeId, liveness, models }) => [nodeId, liveness, models.length]),
    transfers.value
      .filter(({ kind }) => kind === "download")
      .map(({ nodeId, transferId, state }) => [nodeId, transferId, state]),
    events.value.filter(({ kind }) => kind === "MODEL_REMOVED").map(({ key }) => key),
  ]),
);

/** Milliseconds after which nodes that did not answer are asked again. */
const AGAIN_MS = 10_000;

/** Asks the nodes, and again while some do not answer; gives what ends that. */
export function keepLookingAtDisks(): () => void {
  void lookAtDisks();
  const timer = setInterval(() => {
    const known = stored.peek() ?? {};
    const living = nodesByOffer.peek().filter((node) => !isDown(node));
    if (living.some(({ nodeId }) => known[nodeId] === undefined)) void lookAtDisks();
  }, AGAIN_MS);
  return () => clearInterval(timer);
}

let isAsking = false;
let isStale = false;

/** Asks the nodes what they have; once more where it is called meanwhile. */
export async function lookAtDisks(): Promise<void> {
  isStale = true;
  if (isAsking) return;
  isAsking = true;
  try {
    while (isStale) {
      isStale = false;
      stored.value = await askStored();
    }
  } catch (error) {
    // What was known stays; the banner says that the process is gone.
    if (!(error instanceof ProblemError)) throw error;
  } finally {
    isAsking = false;
  }
}
