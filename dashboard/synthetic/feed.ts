/** Messages that a slow reader may leave waiting. */
const WAITING_LIMIT = 4096;

/** Hands every message to all who listen, to each at its own pace. */
export class Feed<Message> {
  readonly #listeners = new Set<(message: Message) => void>();

  send(message: Message): void {
    for (const listener of this.#listeners) listener(message);
  }

  /** `first`, then every message that is sent after this call, until `signal` aborts. */
  async *listen(first: Message, signal: AbortSignal): AsyncGenerator<Message> {
    const waiting: Message[] = [first];
    let wake = (): void => undefined;
    const listener = (message: Message): void => {
      if (waiting.length < WAITING_LIMIT) waiting.push(message);
      wake();
    };
    const aborted = (): void => wake();
    this.#listeners.add(listener);
    signal.addEventListener("abort", aborted);
    try {
      while (!signal.aborted) {
        const message = waiting.shift();
        if (message !== undefined) {
          yield message;
        } else {
          await new Promise<void>((resolve) => (wake = resolve));
        }
      }
    } finally {
      this.#listeners.delete(listener);
      signal.removeEventListener("abort", aborted);
    }
  }
}
