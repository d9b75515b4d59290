/** Values of sessions and generations that are more than a message, or none. */

import type { GenerationDone } from "../generated/values.js";

/** A fixed proposer for a session, whatever the planner predicts. */
export interface Speculation {
  readonly proposerModel: string;
  /** Empty or not given: any node that serves the model. */
  readonly nodeId?: string | undefined;
  /** Drafted tokens a block, 1 to 31; 0 or not given lets the planner choose. */
  readonly blockSize?: number | undefined;
}

/** "auto": the planner pairs a proposer when it pays; "off": the verifier decodes alone. */
export type SpeculationChoice = "auto" | "off" | Speculation;

/** A token that the model held probable, and the natural logarithm of its probability. */
export interface Alternative {
  readonly tokenId: number;
  readonly logProbability: number;
}

/** Committed tokens, oldest first; never empty. */
export interface Tokens {
  readonly tokenIds: readonly number[];
  /** Position of the first in the history. */
  readonly firstIndex: number;
  /** So many of them, counted from the first, were drafted by the proposer. */
  readonly draftedCount: number;
  /**
   * What the model itself gave each token, before bias, penalty, temperature and
   * filters: natural logarithms. Empty unless asked for.
   */
  readonly logProbabilities: readonly number[];
  /** The most probable tokens at each position; empty unless asked for. */
  readonly alternatives: readonly (readonly Alternative[])[];
}

/** A whole generation: its tokens and its end; the rest as in `Tokens`. */
export interface Completion {
  readonly tokenIds: readonly number[];
  readonly done: GenerationDone;
  readonly logProbabilities: readonly number[];
  readonly alternatives: readonly (readonly Alternative[])[];
}

/** A session that was opened anew, most often on another node, and lost nothing. */
export interface Resumption {
  /** The node that was lost, host:port. */
  readonly fromAddress: string;
  /** The node that goes on, host:port; the same where its own node opened it again. */
  readonly toAddress: string;
  /** Why, as the error or stop reason says it. */
  readonly reason: string;
  /** Tokens that were appended there. */
  readonly historyLength: number;
  /** From the loss to the appended history. */
  readonly seconds: number;
}
