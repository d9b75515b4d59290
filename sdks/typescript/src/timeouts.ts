/** Deadlines of a client. Every call has one. */

import * as ranges from "./ranges.js";

/**
 * Deadlines, in seconds.
 *
 * A call that passes its deadline is cancelled on the node too and throws
 * `DeadlineExceeded`, or `NodeUnreachable` when no connection came about.
 */
export interface Timeouts {
  /** To connect, before a call on a connection that is not open. */
  readonly connect: number;
  /**
   * For one call that computes nothing large: create without first tokens, info, fork,
   * close, plan.
   */
  readonly unary: number;
  /**
   * For the close that ends an `await using` session. A session that is not
   * closed in time is evicted by its node after its idle time.
   */
  readonly leave: number;
  /**
   * For an append, and for a create with first tokens, besides `appendPerToken`: it may
   * wait for the session's earlier operations, or other sessions' turns.
   */
  readonly appendBase: number;
  /**
   * For each appended token, and for each that a fork or a rewind left to
   * compute: deadline = appendBase + tokens * appendPerToken.
   */
  readonly appendPerToken: number;
  /**
   * From the request of a generation to its first tokens: earlier operations of
   * the session, then `appendPerToken` for each token not computed yet.
   */
  readonly firstTokens: number;
  /** Between two messages of a generation. */
  readonly streamIdle: number;
  /**
   * For a whole generation. With `deadlineSeconds` it is deadlineSeconds +
   * streamIdle where that is less, because the node ends such a generation.
   */
  readonly generation: number;
  /**
   * For a session with `resume` whose node left, or is lost, while no other can go on: so
   * long it waits for one that can, its own among them, as after an upgrade. A generation
   * with `deadlineSeconds` waits no longer than those. 0 waits for nobody.
   */
  readonly resume: number;
  /** For one watch; watch again after it. */
  readonly watch: number;
}

/** What a client uses unless it is told otherwise. */
export const DEFAULT_TIMEOUTS: Timeouts = {
  connect: 5,
  unary: 10,
  leave: 2,
  appendBase: 30,
  appendPerToken: 0.1,
  firstTokens: 120,
  streamIdle: 30,
  generation: 86_400,
  resume: 60,
  watch: 86_400,
};

/** The defaults with what is `given`. Throws BadRequest for what is no number from 0 on. */
export function timeoutsOf(given: Partial<Timeouts> = {}): Timeouts {
  const timeouts = { ...DEFAULT_TIMEOUTS, ...given };
  for (const [name, seconds] of Object.entries(timeouts)) {
    ranges.number(`timeouts.${name}`, seconds, 0, ranges.LONGEST_SECONDS);
  }
  return timeouts;
}

/** Deadline of a call that computes the keys and values of so many tokens, in seconds. */
export function appendSeconds(timeouts: Timeouts, tokenCount: number): number {
  return timeouts.appendBase + tokenCount * timeouts.appendPerToken;
}
