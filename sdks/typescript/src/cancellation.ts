/** Abort signals, and waiting that ends with them. */

/**
 * A controller that is aborted with `signal`, too.
 *
 * `unlink` takes the listener off again, so that a signal that outlives many
 * calls does not collect their listeners.
 */
export class LinkedAbort {
  readonly #controller = new AbortController();
  readonly #outer: AbortSignal | undefined;
  readonly #onAbort: () => void;

  constructor(signal: AbortSignal | undefined) {
    this.#outer = signal;
    this.#onAbort = () => this.#controller.abort(signal?.reason);
    if (signal?.aborted) {
      this.#onAbort();
    } else {
      signal?.addEventListener("abort", this.#onAbort, { once: true });
    }
  }

  /** Aborted when either was. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Aborts this side only. */
  abort(reason?: unknown): void {
    this.unlink();
    this.#controller.abort(reason);
  }

  /** Stops listening to the outer signal. */
  unlink(): void {
    this.#outer?.removeEventListener("abort", this.#onAbort);
  }
}

/** The value of `work`; throws the signal's reason as soon as it is aborted. */
export async function abortable<T>(work: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (signal === undefined) {
    return work;
  }
  // Nobody else waits for what is left behind.
  work.catch(() => undefined);
  signal.throwIfAborted();
  let onAbort: (() => void) | undefined;
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    if (onAbort !== undefined) {
      signal.removeEventListener("abort", onAbort);
    }
  }
}

/** Waits; throws the signal's reason as soon as it is aborted. */
export async function pause(seconds: number, signal?: AbortSignal): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const passed = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, seconds * 1000);
  });
  try {
    await abortable(passed, signal);
  } finally {
    clearTimeout(timer);
  }
}
