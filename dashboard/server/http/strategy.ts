import type { KvStrategy } from "@kakeya/runtime";

import type { PlanQuestion } from "../../shared/messages";

/** What a page may ask for. */
export const STRATEGIES = ["auto", "full", "sink_window", "restored"] as const;

/** As the client is asked: nothing where the node chooses. */
export function askedStrategy(chosen: PlanQuestion["kvStrategy"]): KvStrategy | undefined {
  return chosen === "auto" ? undefined : chosen;
}
