/** Retries of idempotent calls: how many, and after which pause. */

/** A call is sent at most so often. */
export const MAX_ATTEMPTS = 5;
const FIRST_PAUSE_SECONDS = 0.1;
const LONGEST_PAUSE_SECONDS = 2;

/**
 * Bounds retries to a share of the calls, so that clients never storm a sick node.
 *
 * A call earns `earnedPerCall`, a retry costs 1, at most `capacity` is kept:
 * attempts <= (1 + earnedPerCall) * calls + capacity, which from 1,000 calls on is at most
 * 1.1 times the calls.
 */
export class RetryBudget {
  #tokens: number;

  constructor(
    readonly capacity = 10,
    readonly earnedPerCall = 0.09,
  ) {
    this.#tokens = capacity;
  }

  /** Counts one call. */
  earn(): void {
    this.#tokens = Math.min(this.capacity, this.#tokens + this.earnedPerCall);
  }

  /** Takes one retry; false when the budget is used up. */
  spend(): boolean {
    if (this.#tokens < 1) {
      return false;
    }
    this.#tokens -= 1;
    return true;
  }
}

/**
 * Seconds to wait before the `retry`-th retry (from 0): chance * min(2, 0.1 * 2^retry).
 *
 * `chance` is uniform in 0 to 1, so that clients that failed together do not
 * come back together.
 */
export function pauseSeconds(retry: number, chance: number): number {
  return chance * Math.min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** retry);
}
