import type { Problem } from "./messages";
import { REMEDIES } from "./remedies";

/** An error of the dashboard's own: its name, what happened, and what mends it by the vocabulary. */
export function problem(reason: string, message: string): Problem {
  return { reason, message, mend: REMEDIES[reason] ?? "" };
}
