import { KakeyaError } from "@kakeya/runtime";

import type { Problem } from "../shared/messages";
import { problem } from "../shared/problem";
import { REMEDIES } from "../shared/remedies";

/** A request that this process itself refuses. */
export class Refused extends Error {
  readonly status: number;
  readonly problem: Problem;

  constructor(status: number, reason: string, message: string) {
    super(message);
    this.status = status;
    this.problem = problem(reason, message);
  }
}

/** Status and words of an error; null for one that is a fault of this program. */
export function problemOf(error: unknown): { status: number; problem: Problem } | null {
  if (error instanceof Refused) return { status: error.status, problem: error.problem };
  if (error instanceof KakeyaError) {
    const reason = error.reason || "FLEET_ERROR";
    return {
      status: 502,
      problem: { reason, message: error.problem, mend: REMEDIES[reason] ?? sentence(error.mend) },
    };
  }
  return null;
}

/** A few words as a sentence; empty words stay empty. */
function sentence(words: string): string {
  return words === "" ? "" : `${words[0]?.toUpperCase()}${words.slice(1)}.`;
}
