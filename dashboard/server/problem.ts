import { KakeyaError } from "@kakeya/runtime";

import type { Problem } from "../shared/messages";

/** A request that this process itself refuses. */
export class Refused extends Error {
  readonly status: number;
  readonly problem: Problem;

  constructor(status: number, reason: string, message: string, mend = "") {
    super(message);
    this.status = status;
    this.problem = { reason, message, mend };
  }
}

/** What mends an error on this page, where that is something else than in an application. */
const MENDS: Readonly<Record<string, string>> = {
  SESSION_NOT_FOUND: "Send it again: a new session is opened.",
};

/** Status and words of an error; null for one that is a fault of this program. */
export function problemOf(error: unknown): { status: number; problem: Problem } | null {
  if (error instanceof Refused) return { status: error.status, problem: error.problem };
  if (error instanceof KakeyaError) {
    const reason = error.reason || "FLEET_ERROR";
    return {
      status: 502,
      problem: { reason, message: error.problem, mend: MENDS[reason] ?? sentence(error.mend) },
    };
  }
  return null;
}

/** A few words as a sentence; empty words stay empty. */
function sentence(words: string): string {
  return words === "" ? "" : `${words[0]?.toUpperCase()}${words.slice(1)}.`;
}
