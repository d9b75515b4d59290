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

/** What mends an error, by its reason, where the error does not say so itself. */
const MENDS: Readonly<Record<string, string>> = {
  ARCHIVE_FULL: "Close sessions, or serve more: fleet join --serve archive=1GiB",
  CONTEXT_EXCEEDED: "Give a shorter prompt, or fewer tokens to generate.",
  DRAINING: "Try again: another node takes it.",
  MODEL_NOT_FOUND: "Serve it: fleet join --serve verifier=MODEL",
  NO_PLACEMENT: "Ask for a shorter context, or another K/V strategy.",
  NODE_UNREACHABLE: "Start the node's agent: fleet join",
  NO_ARCHIVE: "Join a node that keeps for others: fleet join --serve archive=1GiB",
  OUT_OF_KV_MEMORY: "Close sessions, or choose sink_window.",
  SESSION_NOT_FOUND: "Send it again: a new session is opened.",
  TOKENIZER_NOT_FOUND: "Serve the model from a folder that has tokenizer.json.",
};

/** Status and words of an error; null for one that is a fault of this program. */
export function problemOf(error: unknown): { status: number; problem: Problem } | null {
  if (error instanceof Refused) return { status: error.status, problem: error.problem };
  if (error instanceof KakeyaError) {
    const reason = error.reason || "FLEET_ERROR";
    return {
      status: 502,
      problem: { reason, message: error.message, mend: MENDS[reason] ?? "" },
    };
  }
  return null;
}
