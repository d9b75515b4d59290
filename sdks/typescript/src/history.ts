/** The client's copy of a session's history. */

import { HistoryLengthMismatch } from "./errors.js";

const FIRST_CAPACITY = 1024;

/**
 * Ids that were appended and received, oldest first, 4 bytes each.
 *
 * `inStep` tells whether the node surely holds the same: while a generation
 * runs, and after one was left early, the node may have committed more.
 * `pending` counts ids whose keys and values the node may still have to compute,
 * as after a fork. `prefillSeconds` is what the node took to compute the prompt: all
 * that was appended since it generated last.
 */
export class History {
  #ids: Uint32Array;
  #length: number;
  inStep = true;
  pending: number;
  #prefillSeconds = 0;
  // Whether the ids at the end are the node's own, so that the next begin a prompt.
  #isAnswered = false;

  constructor(tokenIds: readonly number[] = []) {
    this.#ids = new Uint32Array(Math.max(FIRST_CAPACITY, tokenIds.length));
    this.#ids.set(tokenIds);
    this.#length = tokenIds.length;
    this.pending = tokenIds.length;
  }

  get length(): number {
    return this.#length;
  }

  get prefillSeconds(): number {
    return this.#prefillSeconds;
  }

  /** The latest id; NaN without one. */
  get last(): number {
    return this.#length > 0 ? (this.#ids[this.#length - 1] ?? Number.NaN) : Number.NaN;
  }

  /** The ids from `start` to `end`, exclusive; all unless given. */
  ids(start = 0, end = this.#length): number[] {
    return Array.from(this.#ids.subarray(start, Math.min(end, this.#length)));
  }

  /** Ids that the node appended and computed, in so many seconds. */
  append(tokenIds: readonly number[], prefillSeconds = 0): void {
    if (this.#isAnswered) {
      this.#prefillSeconds = 0;
      this.#isAnswered = false;
    }
    this.#prefillSeconds += prefillSeconds;
    this.#extend(tokenIds);
    this.moved();
  }

  /** The node, or another one, has appended and computed all of it. */
  moved(): void {
    this.inStep = true;
    this.pending = 0;
  }

  /** Ids that the node generated; throws HistoryLengthMismatch when some are missing. */
  receive(tokenIds: readonly number[], firstIndex: number): void {
    if (firstIndex !== this.#length) {
      throw new HistoryLengthMismatch(
        `tokens of position ${firstIndex} arrived, the history has ${this.#length}; ` +
          "does another client use the session?",
      );
    }
    this.#extend(tokenIds);
    this.pending = 0;
    this.#isAnswered = true;
  }

  /** The node's history has `length` ids after a generation; throws as `receive`. */
  finish(length: number): void {
    if (length !== this.#length) {
      throw new HistoryLengthMismatch(
        `the node's history has ${length} tokens, ${this.#length} arrived`,
      );
    }
    this.inStep = true;
  }

  /** Keeps the first `length` ids, as the node now does. */
  cut(length: number): void {
    this.#length = length;
    this.inStep = true;
    this.pending = length;
  }

  #extend(tokenIds: readonly number[]): void {
    const length = this.#length + tokenIds.length;
    if (length > this.#ids.length) {
      const grown = new Uint32Array(Math.max(length, 2 * this.#ids.length));
      grown.set(this.#ids.subarray(0, this.#length));
      this.#ids = grown;
    }
    this.#ids.set(tokenIds, this.#length);
    this.#length = length;
  }
}
