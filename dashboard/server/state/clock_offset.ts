/** Milliseconds up to which two clocks count as the same. */
const SAME_MS = 1000;
/** Latest words that the estimate stands on. */
const WORDS = 32;

/**
 * How far a node's clock is behind the process's, in milliseconds, from words
 * that carry the node's time. A word comes later than it was said, never
 * earlier: the smallest difference of the latest ones is the nearest.
 */
export class ClockOffset {
  readonly #differences: number[] = [];
  #offset = 0;

  get milliseconds(): number {
    return this.#offset;
  }

  /**
   * A word said at `at` by the node's clock came at `now` by the process's.
   * Answers by how many milliseconds the offset changed.
   */
  heard(at: number, now: number): number {
    this.#differences.push(now - at);
    if (this.#differences.length > WORDS) this.#differences.shift();
    const nearest = Math.min(...this.#differences);
    // A step of the estimate within the limit is jitter of the wire, not of a clock.
    const target = Math.abs(nearest) <= SAME_MS ? 0 : nearest;
    if (Math.abs(target - this.#offset) <= SAME_MS && target !== 0) return 0;
    const change = target - this.#offset;
    this.#offset = target;
    return change;
  }
}
