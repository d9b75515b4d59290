import { setTimeout as pause } from "node:timers/promises";

/** Pauses between attempts: doubled with each failure, `first` again after a success. */
export class Backoff {
  readonly #first: number;
  readonly #most: number;
  #next: number;
  #hurried = new AbortController();

  /** Milliseconds. */
  constructor(first: number, most: number) {
    this.#first = first;
    this.#most = most;
    this.#next = first;
  }

  succeeded(): void {
    this.#next = this.#first;
  }

  /** There is news: a wait ends now, and the next is the first again. */
  hurry(): void {
    this.#next = this.#first;
    this.#hurried.abort();
  }

  /** Waits; sooner when `ended` aborts. */
  async wait(ended: AbortSignal): Promise<void> {
    const milliseconds = this.#next;
    this.#next = Math.min(this.#next * 2, this.#most);
    this.#hurried = new AbortController();
    const signal = AbortSignal.any([ended, this.#hurried.signal]);
    if (signal.aborted) return;
    try {
      await pause(milliseconds, undefined, { signal });
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }
}
