import { setTimeout as pause } from "node:timers/promises";

/** Pauses between attempts: doubled with each failure, `first` again after a success. */
export class Backoff {
  readonly #first: number;
  readonly #most: number;
  #next: number;

  /** Milliseconds. */
  constructor(first: number, most: number) {
    this.#first = first;
    this.#most = most;
    this.#next = first;
  }

  succeeded(): void {
    this.#next = this.#first;
  }

  /** Waits; sooner when `signal` aborts. */
  async wait(signal: AbortSignal): Promise<void> {
    const milliseconds = this.#next;
    this.#next = Math.min(this.#next * 2, this.#most);
    if (signal.aborted) return;
    try {
      await pause(milliseconds, undefined, { signal });
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }
}
