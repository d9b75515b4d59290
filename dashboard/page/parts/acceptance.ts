/** How much of each node's drafts is accepted, for what shows it of many nodes. */

import { computed } from "@preact/signals";

import { sessions } from "../state/fleet";
import { draftAcceptances } from "./activity";
import { listSecond } from "./clock";

/** By the drafter's node, anew each second: 0 to 1; absent where it drafted nothing for open sessions. */
export const draftsAccepted = computed(() => {
  void listSecond.value;
  return draftAcceptances(sessions.peek());
});
